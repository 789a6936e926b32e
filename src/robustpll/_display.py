"""Short texts of objects, for consoles and notebooks, however many rows the objects have."""

import reprlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

ROWS = 10  # of a table in a notebook
PAGE = """<p><strong>{{ kind }}</strong> {{ facts }}</p>
{{ table }}{% if notes %}<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
"""


class Displayed:
    """Base class of objects with a short `repr`, and a small table in notebooks.

    By default both show the fields of a dataclass, and of arrays the shapes alone.
    """

    def _facts(self) -> str:
        """What follows the name of the class, in one line."""
        return ", ".join(f"{name}={short(value)}" for name, value in _shown_fields(self))

    def _table(self) -> Any:
        """A DataFrame of at most `ROWS` rows; None for none."""
        import pandas as pd

        cells = {name: short(value) for name, value in _shown_fields(self)}
        return pd.DataFrame({"": cells.values()}, index=[*cells])

    def _notes(self) -> Iterable[object]:
        """Sentences below the table."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._facts()})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks; all texts in it are escaped."""
        import pandas as pd
        from jinja2 import Template
        from markupsafe import Markup

        is_default = type(self)._facts is Displayed._facts  # the table has the same content
        with pd.option_context("display.max_colwidth", 80):
            table = self._table()
            html = "" if table is None else Markup(table.to_html(max_cols=12, escape=True))
        page = Template(PAGE, autoescape=True)
        facts = "" if is_default else self._facts()
        kind, notes = type(self).__name__, [*self._notes()]
        return str(page.render(kind=kind, facts=facts, table=html, notes=notes))


class _Short(reprlib.Repr):
    """Cuts long texts and collections; of arrays and tables it tells the shape."""

    def repr1(self, value: Any, level: int) -> str:
        shape = () if isinstance(value, Displayed) else getattr(value, "shape", ())
        if shape and isinstance(shape, tuple):
            return f"<{type(value).__name__} of shape {tuple(shape)}>"
        return super().repr1(value, level)


_SHORT = _Short()
_SHORT.maxother = _SHORT.maxstring = 160


def short(value: Any) -> str:
    """Return `repr` of a value, cut to a few hundred characters.

    >>> import numpy as np
    >>> short(list(range(1000))), short(np.zeros((1000, 3)))
    ('[0, 1, 2, 3, 4, 5, ...]', '<ndarray of shape (1000, 3)>')
    """
    return _SHORT.repr(value)


def _shown_fields(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in fields(value) if field.repr]
