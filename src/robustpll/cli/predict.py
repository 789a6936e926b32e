"""`robustpll predict`: writes what a model predicts for each row of a table to a CSV file."""

import codecs
import csv
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import typer
from numpy.typing import NDArray
from typer import BadParameter, Option

from robustpll._files import writing
from robustpll.cli import options as shared
from robustpll.cli.fit import ERROR, no_promise
from robustpll.cli.messages import as_options, refusals, refuse_unwritable, say
from robustpll.errors import InputError, ModelFileError, is_share, some_of

if TYPE_CHECKING:
    from robustpll.tables.pieces import Piece, TableInPieces
    from robustpll.tables.source import BadRow

MEASURES = ("probability", "belief", "uncertainty", "entropy")
COLUMNS = ("label", *MEASURES, "prediction_set", "decision", "reason")
ACCEPT, REVIEW = "accept", "review"
MAX_NUMBERS = 2**22  # rows of a piece times classes or features: 32 MiB in float64


@shared.with_options
def predict(
    model: shared.ModelPath,
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="The CSV file to write.")],
    keep: Annotated[
        shared.Texts, Option(metavar="COLUMN", help="Column to copy; repeatable.")
    ] = None,
    truth: shared.Truth = None,
    error: Annotated[float, Option(metavar="SHARE", help="Share of errors to accept.")] = ERROR,
    file: shared.FileOptions,
    skip_bad_rows: shared.SkipBadRows = False,
    device: shared.Device = "auto",
) -> None:
    """Predict each row of a table of any size: the label, its certainty, and a decision.

    The output has one line for each row, in the same order. A row that does not parse is marked
    for review, with the reason.
    """
    if not 0 < error < 1:
        raise BadParameter("--error must be above 0 and below 1.")
    if out.suffix.lower() != ".csv":
        raise BadParameter(f"--out writes CSV: {out} must end in .csv.")
    with refusals(stopped=f"{out} is not written."):
        predictor = Predictor.load(model, error, device)
        refuse_unwritable(out, (model, path), is_predictions, "a file of predict")
        table = predictor.open_table(path, file)
        if new := [repr(name) for name in table.new if name not in (*(keep or ()), truth)]:
            say(f"{path}: the model was fitted without {some_of(new)}, and does not use that.")
        _write(predictor, table, out, keep or [], truth)
    for name, column in table.new_words.items():
        if column.rows:
            words = f"words that training did not see ({some_of(map(repr, column.words))})"
            say(
                f"{path}: {column.rows:,} rows have {words} in column {name!r}; they count as gaps."
            )
    typer.echo("\n".join([*predictor.summary(path), f"The predictions are in {out}."]))
    if predictor.bad_rows:
        remedy = "" if skip_bad_rows else " Pass --skip-bad-rows to accept that."
        first = f"{table.where} {predictor.first_bad_row}"
        say(f"{predictor.bad_rows:,} rows do not parse and are for review ({first}).{remedy}")
        raise typer.Exit(0 if skip_bad_rows else 1)


def is_predictions(start: bytes) -> bool:
    """Return whether a file starts with the header that `predict` writes."""
    header = start.removeprefix(codecs.BOM_UTF8).split(b"\n")[0].decode(errors="replace")
    return header.startswith(("line,", "row,")) and header.endswith(",".join(COLUMNS))


@dataclass(eq=False)
class Predictor:
    """A model, and counts over the rows that it has predicted so far."""

    model: Any  # a fitted classifier
    min_probability: float | None  # of the classes in a prediction set; None if there are no sets
    error: float
    names: list[str]  # of the classes
    known: frozenset[str]  # true labels that name a class; gaps make floats of integers
    reasons: Counter[str] = field(default_factory=Counter)
    compared: Counter[tuple[str, bool]] = field(default_factory=Counter)  # decision, is right
    unknown: Counter[str] = field(default_factory=Counter)  # true classes that the model lacks
    unknown_accepted: int = 0
    bad_rows: int = 0
    first_bad_row: str = ""

    @classmethod
    def load(cls, path: Path, error: float, device: str) -> Self:
        """Load a model that was fitted with named columns."""
        from robustpll import load

        model = load(path, device=device)
        if not hasattr(model, "feature_names_in_"):
            message = f"{path} was fitted with an array, whose columns have no names."
            raise InputError(f"{message} Use `robustpll fit`, or predict in Python.")
        sets = model.notes_.get("sets")
        minimum = sets.get("least") if isinstance(sets, dict) else sets
        if sets is not None and not is_share(minimum):
            raise ModelFileError(f"{path} is damaged: its prediction sets are {sets!r}.")
        if model.trial_ is None:  # it was recalibrated later, which changes probabilities
            minimum = None
        names = [str(name) for name in model.classes_]
        known = frozenset(names).union(f"{name}.0" for name in names)
        return cls(model, minimum, error, names, known)

    def open_table(self, path: Path, file: shared.FileOptions) -> "TableInPieces":
        """Open a table that has the model's columns."""
        from robustpll.tables.columns import Reading, several
        from robustpll.tables.pieces import Schema, TableInPieces

        model, reading = self.model, Reading(**asdict(file) | {"missing": several(file.missing)})
        schema = Schema.of(model.features_, model.feature_names_in_, model.notes_.get("reading"))
        return TableInPieces.opened(path, schema, reading)

    def predict(self, piece: "Piece") -> dict[int, Sequence[str]]:
        """Return the cells of `COLUMNS` for all rows of a piece, by line."""
        features, lines, bad = piece.features, piece.lines, list(piece.bad)
        try:
            columns = self._columns(features)
        except InputError:
            unusable = self.model.features_.unusable_rows(features)
            if not unusable.any():
                raise
            bad += _too_far(self.model.features_, features[unusable], lines[unusable])
            lines = lines[~unusable]
            columns = self._columns(features[~unusable])
        rows = zip(*columns, strict=True)
        cells: dict[int, Sequence[str]] = dict(zip(lines.tolist(), rows, strict=True))
        faults: dict[int, list[str]] = defaultdict(list)
        for row in sorted(bad):
            faults[row.line].append(as_options(str(row)))
            self.first_bad_row = self.first_bad_row or f"{row.line}: {faults[row.line][0]}"
        self.bad_rows += len(faults)
        for line, texts in faults.items():
            cells[line] = (*[""] * (len(COLUMNS) - 2), REVIEW, "; ".join(texts))
        return dict(sorted(cells.items()))

    def _columns(self, features: Any) -> list[Sequence[str]]:
        """Return the columns of the output, for rows that parse."""
        from robustpll.estimator.abstention import NO_PROMISE

        if not len(features):
            return []
        opinion = self.model.predict_opinion(features)
        predicted, n = opinion.predicted(), len(features)
        rows = np.arange(n), predicted
        certain = (opinion.probability[rows], opinion.belief[rows])
        measures = np.clip((*certain, opinion.uncertainty, opinion.entropy), 0, 1)
        columns = [[f"{value:.6g}" for value in measure] for measure in measures]
        sets, decisions, reasons = [""] * n, [REVIEW] * n, [NO_PROMISE] * n
        if self.min_probability is not None:
            sets = _set_cells(opinion.probability >= self.min_probability, self.names)
        if self.model.trial_ is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the summary says it once
                decision = self.model.decide(features, error=self.error)
            decisions = [ACCEPT if accepted else REVIEW for accepted in decision.accepted]
            reasons = decision.reason.tolist()
        return [[self.names[code] for code in predicted], *columns, sets, decisions, reasons]

    def count(self, cells: Sequence[str], truth: str) -> None:
        """Count a row for the summary; `truth` is "" if it is not known."""
        label, decision, reason = cells[0], cells[-2], cells[-1]
        if not label:
            return
        self.reasons[reason.split(":")[0]] += 1
        if truth in self.known:
            self.compared[decision, truth in (label, f"{label}.0")] += 1
        elif truth:
            self.unknown[truth] += 1
            self.unknown_accepted += decision == ACCEPT

    def summary(self, path: Path) -> Iterator[str]:
        """Yield one line for each fact about the predictions."""
        from robustpll.estimator.abstention import NO_PROMISE

        total, compared = self.reasons.total(), self.compared.total()
        counts = [f"{n:,} {reason} ({n / total:.1%})" for reason, n in self.reasons.most_common()]
        yield f"{path}: {total:,} rows predicted; {', '.join(counts)}"
        if self.model.trial_ is None:
            yield "the model is not calibrated: no prediction sets, and all rows are for review"
        elif self.reasons[NO_PROMISE]:
            yield no_promise(self.model.trial_, self.error)
        if compared:
            right = self.compared[ACCEPT, True], self.compared[REVIEW, True]
            shares = f"{sum(right) / compared:.1%} of {compared:,} rows"
            if accepted := right[0] + self.compared[ACCEPT, False]:
                shares += f", and {right[0] / accepted:.1%} of {accepted:,} accepted ones"
            yield f"right by the true labels: {shares}"
        if self.unknown:
            names = some_of(repr(name) for name, _ in self.unknown.most_common())
            yield (
                f"{self.unknown.total():,} rows have a true class that the model does not know "
                f"({names}), and {self.unknown_accepted:,} of them are accepted: these are wrong, "
                "and not in the shares above"
            )


def _set_cells(member: NDArray[np.bool_], names: list[str]) -> list[str]:
    """Return sets as `--candidates` reads them: cat|dog, or JSON lists if names have such signs."""
    plain = not any("|" in name or name.startswith("[") for name in names)
    sets = ([names[code] for code in row.nonzero()[0]] for row in member)
    return ["|".join(row) if plain else json.dumps(row, ensure_ascii=False) for row in sets]


def _too_far(features: Any, rows: Any, lines: NDArray[np.int64]) -> "list[BadRow]":
    """Return rows that are too far from the training data, with the number that is farthest."""
    from robustpll.tables.source import BadRow

    names = [name for name in map(str, rows.columns) if name in features.columns]
    places = [features.columns.index(name) for name in names]
    numbers = rows[names].to_numpy(dtype=np.float64, na_value=np.nan)
    shift, scale = np.array(features.shift)[places], np.array(features.scale)[places]
    with np.errstate(over="ignore"):
        farthest = np.nan_to_num(np.abs(numbers - shift) / scale).argmax(-1)
    return [
        BadRow(line, names[k], f"{row[k]:g}", "is too far from the training rows")
        for line, k, row in zip(lines.tolist(), farthest, numbers, strict=True)
    ]


def _write(
    predictor: Predictor, table: "TableInPieces", out: Path, keep: list[str], truth: str | None
) -> None:
    from rich.console import Console

    from robustpll.tables.source import GAPS, CsvText, safe_cell

    if clash := [name for name in keep if name in (*COLUMNS, table.where)]:
        raise InputError(f"--keep {clash[0]}: the output has a column of this name. Rename it.")
    columns = [*keep, truth] if truth else keep
    max_rows = MAX_NUMBERS // max(len(predictor.names), *predictor.model.features_.shape)
    gaps = {*GAPS, *table.gaps} - predictor.known
    text = CsvText()
    writer = csv.writer(text)
    writer.writerow([table.where, *map(safe_cell, keep), *COLUMNS])
    with writing(out) as file, Console(stderr=True).status("0 rows") as status:
        file.write(codecs.BOM_UTF8)  # spreadsheets recognise UTF-8 by it
        for piece in table.pieces(columns, max_rows):
            for line, cells in predictor.predict(piece).items():
                copied = piece.kept.get(line, ("",) * len(columns))
                label = copied[-1] if truth else ""
                predictor.count(cells, "" if label in gaps else label)
                writer.writerow([line, *map(safe_cell, (*copied[: len(keep)], *cells))])
            file.write(text.pop().encode())
            status.update(f"{predictor.reasons.total() + predictor.bad_rows:,} rows")
        if not predictor.reasons:
            first = f"{table.where} {predictor.first_bad_row}"
            raise InputError(f"No row of the table parses ({first}).")
