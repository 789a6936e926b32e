"""Every page as one self-contained file: styles, script, pictures and data are inside it.

A page is a template that extends `base.html.j2`. Its tables are plain HTML; those of the class
`sortable` are sorted, filtered and cut into pages by `table.js`. Long tables travel as data and
are drawn a page at a time. The page's policy allows its own script and styles by their hashes and
nothing else, so that text which slipped through as markup could still not run.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Column:
    """A column of a long table."""

    title: str
    decimals: int | None = None  # of numbers; None for text
    choose: bool = False  # whether a list above the table offers its values
    in_table: bool = True  # where it is shown
    in_details: bool = True


@dataclass(frozen=True)
class Details:
    """What opens with a row: a title, the rows that share these details, facts under headings.

    >>> Details("Proden on lost", {"Method": {"epochs": 200}}).parts["Method"]["epochs"]
    200
    """

    title: str
    parts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class LongTable:
    """A table of many rows, which travels as data.

    >>> columns = [Column("method"), Column("accuracy", 1)]
    >>> about = [Details("Proden", {"Method": {"epochs": 200}})]
    >>> table = LongTable("runs", columns, [("Proden", 93.2)], about, [0])
    >>> table.data()["facts"], table.data()["details"]
    ([{'epochs': 200}], [['Proden', [['Method', 0]]]])
    """

    name: str  # its id in the page
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]  # a cell for each column
    details: Sequence[Details]
    opens: Sequence[int]  # for each row, which of the details

    def data(self) -> dict[str, Any]:
        """What `table.js` reads. Equal facts are written once: runs share most of theirs."""
        facts: dict[str, int] = {}
        details = []
        for each in self.details:
            numbers = [
                [heading, facts.setdefault(_json(part), len(facts))]
                for heading, part in each.parts.items()
            ]
            details.append([each.title, numbers])
        return {
            "columns": [asdict(column) for column in self.columns],
            "rows": [list(row) for row in self.rows],
            "opens": list(self.opens),
            "details": details,
            "facts": [json.loads(fact) for fact in facts],
        }


def render_page(template: Path, **values: Any) -> str:
    """A whole page from a template that extends `base.html.j2`.

    What the template includes may lie beside it. All values are escaped; a name that it has and
    `values` lack is an error, never an empty place.

    >>> import tempfile
    >>> source = '{% extends "base.html.j2" %}{% block title %}{{ name }}{% endblock %}'
    >>> source += "{% block main %}<p>{{ name }}</p>{% endblock %}"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     template = Path(folder) / "page.html.j2"
    ...     _ = template.write_text(source)
    ...     page = render_page(template, name="<b>lost</b>")
    >>> "<p>&lt;b&gt;lost&lt;/b&gt;</p>" in page
    True
    """
    return _environment(template.parent).get_template(template.name).render(values)


def _environment(folder: Path) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["base_style"] = Markup((HERE / "base.css").read_text("utf-8"))
    environment.globals["base_script"] = Markup((HERE / "table.js").read_text("utf-8"))
    environment.filters["allowed"] = allowed
    environment.filters["json_block"] = json_block
    environment.filters["data_uri"] = data_uri
    return environment


def allowed(code: str) -> str:
    """The policy's word for an inline script or style: its hash.

    >>> allowed("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def json_block(value: Any, name: str) -> "Markup":
    """Data for the page's script. No text in it can end the block: "<" is written as an escape.

    >>> print(json_block(["</script>", float("nan")], "rows"))
    <script type="application/json" id="rows">["\\u003c/script>",null]</script>
    """
    from markupsafe import Markup

    text = _json(value).replace("<", "\\u003c")
    block = Markup('<script type="application/json" id="{}">{}</script>')
    return block.format(name, Markup(text))


def data_uri(content: bytes, kind: str) -> str:
    """A picture as its own address, such as `data:image/png;base64,...`.

    >>> data_uri(b"<svg/>", "image/svg+xml")
    'data:image/svg+xml;base64,PHN2Zy8+'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _json(value: Any) -> str:
    """Short JSON; what is not finite has no JSON, and is none."""
    return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
