"""A table as people read it, and how it is written: Markdown, LaTeX and CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

OFF = "✗"  # beside a number that is further from the paper's than the tolerance
CSV_HEAD = ("value", "std", "bold", "runs", "asked", "note")
CSV_BESIDE = ("published", "published_std", "difference", "tolerance", "agrees", "why_not")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    OFF: r"$\times$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


@dataclass(frozen=True)
class Published:
    """What the paper has in a cell's place."""

    value: float
    std: float | None
    tolerance: float | None  # None: shown, but nothing is concluded
    why_not: str = ""  # why nothing is concluded: "other datasets"


@dataclass(frozen=True)
class Cell:
    """A number of a table, or why there is none.

    >>> Cell(95.94, 0.16, runs=5, asked=5).text(1), Cell(95.94, runs=3, asked=5).text(1)
    ('95.9 ± 0.2', '95.9 (3 of 5 runs)')
    >>> Cell(note="not attacked").text(1)
    'not attacked'
    """

    value: float | None = None  # in the table's unit, unrounded
    std: float | None = None
    runs: int = 0  # that the number rests on
    asked: int = 0  # by the grid
    bold: bool = False
    note: str = ""  # in place of a number
    published: Published | None = None

    @property
    def complete(self) -> bool:
        """Whether there is a number, and no run is missing from it."""
        return self.value is not None and self.runs == self.asked

    @property
    def difference(self) -> float | None:
        """From the paper's number."""
        if self.published is None or self.value is None:
            return None
        return self.value - self.published.value

    @property
    def agrees(self) -> bool | None:
        """Whether the number is the paper's within the tolerance; None if nothing is concluded."""
        if self.difference is None or not self.complete:
            return None
        tolerance = self.published.tolerance if self.published else None
        # The paper's numbers have few decimals: a rounding error of ours must not decide.
        return None if tolerance is None else abs(self.difference) <= tolerance + 1e-9

    def text(self, decimals: int) -> str:
        """As people read it, without markup."""
        if self.value is None:
            return self.note
        found = number(self.value, decimals)
        if self.std is not None:
            found += f" ± {number(self.std, decimals)}"
        return found if self.complete else f"{found} ({self.runs} of {self.asked} runs)"

    def text_beside(self, decimals: int) -> str:
        """The same beside the paper's number, and their difference.

        >>> Cell(95.94, runs=5, asked=5, published=Published(97.5, 0.1, 1.0)).text_beside(1)
        '95.9, paper 97.5, -1.6 ✗'
        """
        if self.published is None:
            return self.text(decimals)
        paper = f"paper {number(self.published.value, decimals)}"
        if self.value is None or self.difference is None:
            return f"{self.note}, {paper}"
        alone = Cell(self.value, runs=self.runs, asked=self.asked).text(decimals)
        off = f" {OFF}" if self.agrees is False else ""
        return f"{alone}, {paper}, {number(self.difference, decimals, '+')}{off}"


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ReportTable:
    """A table of a report; the same one is always written with the same bytes.

    >>> rows = (Row("a_b", (Cell(1.25, bold=True),)), Row("c", (Cell(note="missing"),)))
    >>> print(ReportTable("t", "Sizes", ("m",), (rows,), (1,)).to_markdown())
    ## Sizes
    <BLANKLINE>
    | method | m |
    |:--|--:|
    | a\\_b | **1.2** |
    | c | missing |
    <BLANKLINE>
    """

    name: str  # of its files: "table-1"
    title: str
    columns: tuple[str, ...]  # heads of the cells
    groups: tuple[tuple[Row, ...], ...]  # with a rule between them
    decimals: tuple[int, ...]  # one for each column
    notes: tuple[str, ...] = ()  # what a reader must know, below the table
    head: str = "method"  # of the labels
    beside: bool = False  # whether cells show the paper's numbers, too

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of all groups."""
        return tuple(row for group in self.groups for row in group)

    def changed(self, change: Callable[[str, str, Cell], Cell]) -> Self:
        """With other cells; each is made from a label, a head and the cell that was there."""

        def changed(row: Row) -> Row:
            pairs = zip(self.columns, row.cells, strict=True)
            return Row(row.label, tuple(change(row.label, head, cell) for head, cell in pairs))

        return replace(self, groups=tuple(tuple(map(changed, group)) for group in self.groups))

    def texts(self, row: Row) -> tuple[str, ...]:
        """The cells of a row as people read them, without markup."""
        return tuple(
            cell.text_beside(decimals) if self.beside else cell.text(decimals)
            for cell, decimals in zip(row.cells, self.decimals, strict=True)
        )

    def to_markdown(self) -> str:
        """With the title as a heading, and the notes as a list."""
        lines = [
            f"## {in_markdown(self.title)}",
            "",
            _markdown_line(in_markdown(each) for each in (self.head, *self.columns)),
            f"|:--|{'--:|' * len(self.columns)}",
        ]
        for number_, group in enumerate(self.groups):
            if number_:
                lines.append(_markdown_line("" for _ in ("", *self.columns)))
            lines += [
                _markdown_line(self._marked(row, in_markdown, lambda text: f"**{text}**"))
                for row in group
            ]
        if self.notes:
            lines += ["", *(f"- {in_markdown(note)}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A floating table; needs the package booktabs."""
        lines = [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{in_latex(self.title)}}}",
            f"\\label{{tab:{re.sub('[^a-z0-9-]', '-', self.name.lower())}}}",
            f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            _latex_line(in_latex(each) for each in (self.head, *self.columns)),
        ]
        for group in self.groups:
            lines.append(r"\midrule")
            lines += [
                _latex_line(self._marked(row, in_latex, lambda text: f"\\textbf{{{text}}}"))
                for row in group
            ]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [f"\\par\\footnotesize {in_latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def to_csv(self) -> str:
        """One line for each cell, with unrounded numbers in the table's unit."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow((self.head, "column", *CSV_HEAD, *(CSV_BESIDE if self.beside else ())))
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                plain = (cell.value, cell.std, int(cell.bold), cell.runs, cell.asked, cell.note)
                beside = _csv_beside(cell) if self.beside else ()
                writer.writerow((row.label, column, *plain, *beside))
        return buffer.getvalue()

    def _marked(
        self, row: Row, escape: Callable[[str], str], strong: Callable[[str], str]
    ) -> Iterator[str]:
        yield escape(row.label)
        for cell, text in zip(row.cells, self.texts(row), strict=True):
            yield strong(escape(text)) if cell.bold else escape(text)


def number(value: float, decimals: int, sign: str = "-") -> str:
    """With thousands apart, and never minus 0.

    >>> number(-0.01, 1), number(1234.5, 0), number(0.5, 1, "+")
    ('0.0', '1,234', '+0.5')
    """
    return f"{value:{sign}z,.{decimals}f}"


def in_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is, also in a table.

    >>> in_markdown("a|b_*<i>\n")
    'a\\|b\\_\\*&lt;i&gt;'
    """
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", plain)


def in_latex(text: str) -> str:
    r"""Text that LaTeX sets as it is.

    >>> in_latex(r"50 % of a_b \x")
    '50 \\% of a\\_b \\textbackslash{}x'
    """
    return "".join(LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _markdown_line(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_line(cells: Iterator[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _csv_beside(cell: Cell) -> tuple[object, ...]:
    if cell.published is None:
        return ("",) * len(CSV_BESIDE)
    agrees = "" if cell.agrees is None else int(cell.agrees)
    paper = cell.published
    return paper.value, paper.std, cell.difference, paper.tolerance, agrees, paper.why_not
