"""`robustpll predict`: what a model says of each row of a table, as a CSV file."""

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import typer
from numpy.typing import NDArray

from robustpll._files import writing
from robustpll.cli.fit import ERROR
from robustpll.cli.flags import COLUMN, TABLE, FileFlags, as_options, with_flags
from robustpll.cli.messages import refusals, refuse_unwritable, say
from robustpll.errors import InputError, ModelFileError, is_share, some_of
from robustpll.tables.columns import Reading, several
from robustpll.tables.csv_rows import GAPS, BadRow

if TYPE_CHECKING:
    from robustpll.tables.pieces import Piece, TableInPieces

MEASURES = ("probability", "belief", "uncertainty", "entropy")
COLUMNS = ("label", *MEASURES, "prediction_set", "decision", "reason")
ACCEPT, REVIEW = "accept", "review"
MOST_NUMBERS = 2**22  # of a piece's rows times classes or features: 32 MiB in float64


@with_flags
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `fit` wrote.")],
    path: Annotated[Path, TABLE],
    *,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar=COLUMN, help="Copy it, such as an id; may be repeated."),
    ] = None,
    truth: Annotated[
        str | None, typer.Option(metavar=COLUMN, help="True labels, to compare with.")
    ] = None,
    error: Annotated[
        float, typer.Option(metavar="SHARE", help="Of accepted rows that may be wrong.")
    ] = ERROR,
    file: FileFlags,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Rows that do not parse are no failure.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Predict each row of a table of any size: label, how sure, and whether to go by it.

    The output has a line for each row of the table, in the same order. A row that does not parse
    is to be reviewed, and the reason says why.
    """
    if not 0 < error < 1:
        raise typer.BadParameter("--error must be above 0 and below 1.")
    if out.suffix.lower() != ".csv":
        raise typer.BadParameter(f"--out writes CSV: {out} must end in .csv.")
    with refusals(stopped=f"{out} is not written."):
        judge = Judge.loaded(model, error, device)
        refuse_unwritable(out, (model, path), is_predictions, "what predict wrote")
        table = _opened(judge, path, file)
        _tell_new(table, path, [*(keep or []), truth])
        _write(judge, table, out, keep or [], truth)
    _tell_new_words(table, path)
    for sentence in judge.summary(path):
        typer.echo(sentence)
    typer.echo(f"The predictions are in {out}.")
    if judge.bad:
        remedy = "" if skip_bad_rows else " Pass --skip-bad-rows if that is no failure."
        say(
            f"{judge.bad:,} rows do not parse; their decision is {REVIEW!r}, and the reason says "
            f"why ({table.where} {judge.first_bad}).{remedy}"
        )
        raise typer.Exit(0 if skip_bad_rows else 1)


def is_predictions(start: bytes) -> bool:
    """Whether a file begins with the header that `predict` writes."""
    text = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")
    try:
        header = next(csv.reader(text), [])
    except csv.Error:
        return False
    return header[:1] in (["line"], ["row"]) and tuple(header[-len(COLUMNS) :]) == COLUMNS


@dataclass(eq=False)
class Judge:
    """A model, and what it said so far."""

    model: Any
    least: float | None  # probability of a class in a prediction set; None if there are no sets
    error: float
    names: list[str]  # of the classes
    told: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)  # true classes that the model lacks
    unknown_accepted: int = 0  # rows of these that are accepted
    bad: int = 0
    first_bad: str = ""

    @classmethod
    def loaded(cls, path: Path, error: float, device: str) -> Self:
        from robustpll import load

        model = load(path, device=device)
        if not hasattr(model, "feature_names_in_"):
            raise InputError(
                f"{path} was fitted with an array, whose columns have no names to find in a table. "
                "Fit a model with robustpll fit, or predict in Python: robustpll.load(...)."
            )
        sets = model.notes_.get("sets")
        least = sets.get("least") if isinstance(sets, dict) else sets
        if sets is not None and not is_share(least):
            raise ModelFileError(
                f"{path} is damaged: its prediction sets are described by {sets!r}."
            )
        if model.trial_ is None:  # recalibrated since, so that probabilities are others
            least = None
        return cls(model, least, error, [str(name) for name in model.classes_])

    @cached_property
    def _known(self) -> frozenset[str]:
        """What true labels may be: a gap turns integers into floats."""
        return frozenset(self.names).union(f"{name}.0" for name in self.names)

    def truths(self, table: "TableInPieces", piece: "Piece") -> dict[int, str]:
        """The last of the cells that are kept, by line, where it names a class."""
        last = {line: kept[-1] for line, kept in piece.kept.items()}
        gaps = {*GAPS, *table.gaps} - self._known
        return {line: cell for line, cell in last.items() if cell not in gaps}

    def rows(self, piece: "Piece", truths: dict[int, str]) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of all rows of a piece, in their order; `truths` by line."""
        cells, odd = self._cells(piece)
        said: dict[int, list[str]] = {}
        for one in sorted((*piece.bad, *odd)):
            reason = as_options(str(one))
            self.first_bad = self.first_bad or f"{one.line}: {reason}"
            before = said.get(one.line)
            said[one.line] = [*[""] * (len(COLUMNS) - 2), REVIEW, reason]
            if before:
                said[one.line][-1] = f"{before[-1]}; {reason}"
        self.bad += len(said)
        said |= cells
        for line in sorted(said):
            self._count(said[line], truths.get(line, ""))
            yield line, said[line]

    def _cells(self, piece: "Piece") -> tuple[dict[int, list[str]], list[BadRow]]:
        """What `COLUMNS` names, by line; and why rows that parse cannot be predicted."""
        features, lines = piece.features, piece.lines
        if not len(lines):
            return {}, []
        odd: list[BadRow] = []
        try:
            columns = list(self._columns(features))
        except InputError:
            unusable = self.model.features_.unusable_rows(features)
            if not unusable.any():
                raise
            odd = _too_far(self.model.features_, features[unusable], lines[unusable])
            lines = lines[~unusable]
            columns = list(self._columns(features[~unusable])) if len(lines) else []
        cells = map(list, zip(*columns, strict=True))
        return dict(zip(lines.tolist(), cells, strict=True)), odd

    def _columns(self, features: Any) -> Iterator[Sequence[str]]:
        """What `COLUMNS` names, of rows that parse."""
        from robustpll.estimator.abstention import NO_PROMISE

        opinion = self.model.predict_opinion(features)
        at = opinion.predicted()
        rows = np.arange(len(at)), at
        yield [self.names[label] for label in at]
        for numbers in (
            opinion.probability[rows],
            opinion.belief[rows],
            opinion.uncertainty,
            opinion.entropy,
        ):
            yield [f"{number:.6g}" for number in np.clip(numbers, 0, 1)]
        nothing = [""] * len(at)
        if self.least is None:
            yield nothing
        else:
            yield _sets(opinion.probability >= self.least, self.names)
        if self.model.trial_ is None:  # `decide` would go by how the table is cut in pieces
            yield from ([REVIEW] * len(at), [NO_PROMISE] * len(at))
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the summary says it, once
            decision = self.model.decide(features, error=self.error)
        yield [ACCEPT if accepted else REVIEW for accepted in decision.accepted]
        yield decision.reason.tolist()

    def _count(self, cells: list[str], truth: str) -> None:
        label, decision, reason = cells[0], cells[-2], cells[-1]
        if not label:
            return
        self.told[reason.split(":")[0]] += 1
        if not truth:
            return
        if truth not in self._known:
            self.unknown[truth] += 1
            self.unknown_accepted += decision == ACCEPT
            return
        for group in {"all", decision}:
            self.compared[group] += 1
            self.right[group] += truth in (label, f"{label}.0")

    def summary(self, path: Path) -> Iterator[str]:
        from robustpll.estimator.abstention import NO_PROMISE

        total = self.told.total()
        groups = ", ".join(
            f"{count:,} {name} ({count / total:.1%})" for name, count in self.told.most_common()
        )
        decided = self.model.trial_ is not None
        yield f"{path}: {total:,} rows predicted" + (f"; {groups}" if decided else "")
        if not decided:
            yield (
                "no prediction sets, and all rows are for review: the model was not calibrated, or "
                "by too few held-out rows"
            )
        elif self.told[NO_PROMISE]:
            yield self._no_promise()
        if self.compared["all"]:
            parts = [
                f"{self.right[group] / self.compared[group]:.1%} of {words}"
                for group, words in (
                    ("all", f"{self.compared['all']:,} rows"),
                    (ACCEPT, f"{self.compared[ACCEPT]:,} accepted ones"),
                )
                if self.compared[group]
            ]
            yield f"right by the true labels: {', and '.join(parts)}"
        if self.unknown:
            names = some_of(repr(name) for name, _ in self.unknown.most_common())
            yield (
                f"{self.unknown.total():,} rows have a true class that the model does not know "
                f"({names}), and {self.unknown_accepted:,} of them are accepted: any prediction of "
                "them is wrong, and the shares above leave them out"
            )

    def _no_promise(self) -> str:
        trial = self.model.trial_
        why = "too many of the rows held out from the training are wrong"
        if not trial.can_promise(self.error):
            why = (
                f"it takes {trial.fewest(self.error):,} labelled rows held out from the training, "
                f"and these were {len(trial.certainty):,}"
            )
        return (
            f"no promise can be made that {100 * self.error:.3g}% or fewer of accepted rows are "
            f"wrong: {why}. So no row is accepted. Allow a larger --error, or fit with more rows"
        )


def _sets(member: NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    """As `--candidates` reads them: cat|dog, or JSON lists where names hold such marks."""
    plain = not any("|" in name or name.startswith("[") for name in names)
    members = ([names[at] for at in row.nonzero()[0]] for row in member)
    return ["|".join(some) if plain else json.dumps(some, ensure_ascii=False) for some in members]


def _too_far(features: Any, rows: Any, lines: NDArray[np.int64]) -> list[BadRow]:
    """Rows that are too far from the training rows, by the number that is so most."""
    names = [name for name in map(str, rows.columns) if name in features.columns]
    at = [features.columns.index(name) for name in names]
    numbers = rows[names].to_numpy(dtype=np.float64, na_value=np.nan)
    shift, scale = (np.array(part)[at] for part in (features.shift, features.scale))
    with np.errstate(over="ignore"):
        farthest = np.nan_to_num(np.abs(numbers - shift) / scale).argmax(-1)
    return [
        BadRow(line, names[place], f"{row[place]:g}", "is too far from the training rows")
        for line, place, row in zip(lines.tolist(), farthest, numbers, strict=True)
    ]


def _opened(judge: Judge, path: Path, file: FileFlags) -> "TableInPieces":
    """The table, if it has the model's columns."""
    from robustpll.tables.pieces import Schema, TableInPieces

    model = judge.model
    schema = Schema.of(model.features_, model.feature_names_in_, model.notes_.get("reading"))
    asked = Reading(**asdict(file) | {"missing": several(file.missing)})
    try:
        return TableInPieces.opened(path, schema, asked)
    except InputError as error:
        raise InputError(as_options(str(error))) from error


def _tell_new(table: "TableInPieces", path: Path, used: Sequence[str | None]) -> None:
    """Say which columns are new and serve as nothing."""
    new = [repr(name) for name in table.new if name not in used]
    if new:
        say(f"{path}: the model was fitted without {some_of(new)}, and makes no use of that.")


def _tell_new_words(table: "TableInPieces", path: Path) -> None:
    """Say in how many rows a column has a word that training did not see."""
    told = [
        f"{new.rows:,} in column {name!r} ({some_of(map(repr, new.words))})"
        for name, new in table.new_words.items()
        if new.rows
    ]
    if told:
        say(
            f"{path}: a word that training did not see counts as no value; rows with such a "
            f"word: {', '.join(told)}."
        )


def _write(
    judge: Judge, table: "TableInPieces", out: Path, keep: list[str], truth: str | None
) -> None:
    from robustpll.tables.source import CsvText, safe_cell

    clash = [name for name in keep if name in (*COLUMNS, table.where)]
    if clash:
        raise InputError(
            f"--keep {clash[0]}: the output has a column of this name. Rename it in the table."
        )
    also = [*keep, truth] if truth else keep
    most = MOST_NUMBERS // max(len(judge.names), *judge.model.features_.shape)
    try:
        with writing(out) as raw, _text(raw) as text, _rows_done() as done:
            written = CsvText()
            writer = csv.writer(written)
            writer.writerow([table.where, *map(safe_cell, keep), *COLUMNS])
            for piece in table.pieces(also, most):
                truths = judge.truths(table, piece) if truth else {}
                nothing = ("",) * len(also)
                for line, cells in judge.rows(piece, truths):
                    kept = piece.kept.get(line, nothing)[: len(keep)]
                    writer.writerow([line, *map(safe_cell, (*kept, *cells))])
                text.write(written.pop())
                done(len(piece.lines))
            if not judge.told:
                raise InputError(f"No row of the table parses ({table.where} {judge.first_bad}).")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}.") from error


@contextmanager
def _text(raw: Any) -> Iterator[io.TextIOWrapper]:
    """UTF-8 with the mark at its beginning by which spreadsheets know it."""
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    yield text
    text.flush()
    text.detach()  # the file below is closed by who opened it


@contextmanager
def _rows_done() -> Iterator[Any]:
    """Tells on a terminal how many rows are done."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} rows"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bars:
        task = bars.add_task("rows", total=None)
        yield lambda rows: bars.advance(task, rows)
