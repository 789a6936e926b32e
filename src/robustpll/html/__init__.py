"""Self-contained HTML pages from templates that extend `base.html.j2`: one file, no network."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Column:
    """A column of a long table."""

    title: str
    decimals: int | None = None  # of numbers; None for text
    choose: bool = False  # whether a list above the table offers its values
    in_table: bool = True
    in_details: bool = True


@dataclass(frozen=True)
class LongTable:
    """A table of many rows, stored as data and drawn one page at a time."""

    name: str  # its id in the page
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]  # a cell for each column
    details: Sequence[tuple[str, Mapping[str, Any]]]  # titles, and facts under headings
    opens: Sequence[int]  # for each row, the index of its details

    def data(self) -> dict[str, Any]:
        """Return what `table.js` reads; equal facts are stored once."""
        facts: dict[str, int] = {}
        details = []
        for title, parts in self.details:
            texts = [(name, _json(part)) for name, part in parts.items()]
            details.append((title, [(n, facts.setdefault(t, len(facts))) for n, t in texts]))
        return {
            "columns": [asdict(column) for column in self.columns],
            "rows": self.rows,
            "opens": self.opens,
            "details": details,
            "facts": [json.loads(fact) for fact in facts],
        }


def render_page(template: Path, **values: Any) -> str:
    """Return the page of a template; values are escaped, and a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    loader = FileSystemLoader([template.parent, HERE])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    for name, file in (("base_style", "base.css"), ("base_script", "table.js")):
        environment.globals[name] = Markup((HERE / file).read_text("utf-8"))
    environment.filters.update(allowed=allowed, data_uri=data_uri)
    environment.policies.update({"json.dumps_function": _json, "json.dumps_kwargs": {}})
    return environment.get_template(template.name).render(values)


def allowed(code: str) -> str:
    """Return the hash by which the policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def data_uri(content: bytes, kind: str) -> str:
    """Return a picture as a URI such as `data:image/png;base64,...`."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _json(value: Any) -> str:
    def finite(value: Any) -> Any:  # JSON has no NaN and no infinity: they become null
        if isinstance(value, Mapping):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
