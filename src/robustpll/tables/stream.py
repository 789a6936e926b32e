"""Parquet and Arrow files that exceed the memory: rows to learn from, and to predict."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robustpll._display import Displayed
from robustpll._files import writing
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, refuse_other_than_share, some_of
from robustpll.estimator.abstention import NO_PROMISE
from robustpll.estimator.streaming import StreamedRows, feature_names
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import as_names
from robustpll.opinion import Opinion
from robustpll.tables.labels import NO_CLASS, _names_in, read_labels
from robustpll.tables.read import read_table
from robustpll.tables.source import (
    BUFFER,
    PARQUET,
    SHOWN,
    BadRow,
    check_names,
    parquet_file,
    several,
)

ARROW = (".arrow", ".feather", ".ipc")
PIECE_ROWS, PIECE_CELLS = 2**17, 2**23  # that are read at once
UNIT = "\x1f"  # between the names of a list that is encoded as text
FORMS = ("candidates", "votes", "indicators")
OURS = {b"robustpll": b"predictions"}  # metadata of files that may be replaced


class Piece(NamedTuple):
    """Consecutive rows."""

    columns: list[NDArray[Any]]  # the numbers of each feature, (b,) each, all finite
    classes: set[Any]  # names of the classes that occur; empty without labels
    candidates: Any  # a function from the names of all classes to `Candidates`; None without labels


def joined(
    names: Sequence[str], pieces: Sequence[Piece], classes: NDArray[Any] | None
) -> tuple[pd.DataFrame, Any]:
    """Return the features and the candidates of pieces in memory; no candidates without classes."""
    columns = zip(names, zip(*(part.columns for part in pieces), strict=True), strict=True)
    frame = pd.DataFrame({name: np.concatenate(parts) for name, parts in columns})
    if classes is None:
        return frame, None
    parts = [piece.candidates(classes) for piece in pieces]
    arrays = ([getattr(part, name) for part in parts] for name in ("matrix", "prior"))
    matrix, prior = map(np.concatenate, arrays)
    return frame, Candidates(matrix, classes, prior)


@dataclass(frozen=True, repr=False)
class ParquetRows(Displayed, StreamedRows):
    """Rows of a Parquet or Arrow file, or of a folder of them, to be read in pieces.

    ``PLLClassifier("robust_pll").fit(ParquetRows(...))`` holds only some of the rows in memory.

    Parameters
    ----------
    path : str or Path
        A file, or a folder whose files (.parquet, .pq, .arrow, .feather, .ipc) are read by name.
    candidates, votes, indicators : str, optional
        One of: the column of candidates, with lists of names, texts such as ``cat|dog``, or labels;
        the prefix of columns with answers of annotators; the prefix of 0/1 columns.
    features : sequence of str, optional
        Columns of numbers without gaps; by default all other columns.
    separator : str
        The character between names in a text.
    scratch : str or Path, optional
        Folder of the scratch files, by default that of temporary files. They are removed.
    window : int, optional
        Number of rows in memory at a time; by default they take some 128 MiB.

    Examples
    --------
    >>> import tempfile
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> table = pd.DataFrame(X, columns=["a", "b", "c"])
    >>> table["seen"] = ["cat|dog", "cat"] * 10 + ["dog", "dog|emu"] * 10 + ["emu"] * 20
    >>> from robustpll import PLLClassifier
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/pets.parquet")
    ...     rows = ParquetRows(f"{folder}/pets.parquet", candidates="seen")
    ...     model = PLLClassifier("proden", random_state=0).fit(rows)
    >>> model.predict(table[["a", "b", "c"]])[[0, 20, 40]].tolist()
    ['cat', 'dog', 'emu']
    """

    path: str | Path
    candidates: str | None = None
    votes: str | None = None
    indicators: str | None = None
    features: Sequence[str] | None = None
    separator: str = "|"
    scratch: str | Path | None = None
    window: int | None = None
    # of each `split`: share, seed, and whether the rows are those drawn, or the others
    _drawn: tuple[tuple[float, int, bool], ...] = field(default=(), init=False, repr=False)

    @property
    def has_prior(self) -> bool:
        """Whether candidates have a prior that is not uniform."""
        return self.votes is not None

    def split(self, share: float, random_state: int = 0) -> tuple[Self, Self]:
        """Return most of the rows, and a random share of them, to evaluate and calibrate by."""
        refuse_other_than_share("share", share)
        parts = (replace(self), replace(self))
        for part, is_drawn in zip(parts, (False, True), strict=True):
            object.__setattr__(part, "_drawn", (*self._drawn, (share, random_state, is_drawn)))
        return parts

    def read(self, classes: NDArray[Any] | None = None) -> tuple[pd.DataFrame, Candidates | None]:
        """Return all rows in memory: features, and candidates if there are any.

        `classes` are all names of classes, by default those that occur.
        """
        pieces = [*self.pieces(labelled=self._form is not None)]
        if classes is None and self._form is not None:
            classes = np.unique(as_names([*set[Any]().union(*(part.classes for part in pieces))]))
        return joined(self.names, pieces, classes)

    def count(self) -> int:
        """Return the number of rows of all files."""
        return sum(map(_row_count, self.files))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, sorted by name."""
        path, endings = Path(self.path), (*PARQUET, *ARROW)
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = tuple(file for file in inside if file.suffix.lower() in endings and file.is_file())
        if not files:
            rule = f"no file that ends in {', '.join(endings)}"
            raise InputError(f"path={str(path)!r}: there is {rule}. Check the path.")
        return files

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the files; raises InputError if files have different columns or types."""
        first = _schema(self.files[0])
        for file in self.files[1:]:
            schema = _schema(file)
            if odd := sorted({*first.names} ^ {*schema.names}):
                raise InputError(f"{self.files[0]} and {file} differ in column {odd[0]!r}.")
            for name in first.names:
                kinds = first.field(name).type, schema.field(name).type
                if kinds[0] != kinds[1] and not all(map(_is_number, kinds)):
                    text = f"of type {kinds[0]} in {self.files[0]}, and {kinds[1]} in {file}"
                    raise InputError(f"Column {name!r} is {text}. Write both alike.")
        return tuple(name for name in first.names if not name.startswith("__index_level_"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        others = () if self._form is None else self._label_columns
        names = self.features
        if names is None:
            names = [name for name in self.columns if name not in others]
        if not names or {*names} & {*others}:
            raise InputError(f"features must name columns other than the labels; got {names!r}.")
        return several(names)

    @cached_property
    def _form(self) -> str | None:
        passed = [form for form in FORMS if getattr(self, form) is not None]
        if len(passed) > 1:
            raise InputError(f"{passed[0]} and {passed[1]} are passed: pass only one of them.")
        return passed[0] if passed else None

    @cached_property
    def _label_columns(self) -> list[str]:
        if self._form is None:
            raise InputError("ParquetRows has no labels: pass candidates, votes or indicators.")
        name = str(getattr(self, self._form))
        if self._form == "candidates":
            check_names(self.columns, [name], "candidates")
            return [name]
        columns = [column for column in self.columns if column.startswith(name)]
        if not name or len(columns) < 1 + (self._form == "indicators"):
            rule = f"it must be the beginning of some of {some_of(map(repr, self.columns))}"
            raise InputError(f"{self._form}={name!r}: {rule}.")
        return columns

    def pieces(
        self, names: tuple[str, ...] | None = None, *, labelled: bool = True
    ) -> Iterator[Piece]:
        """Yield all rows in order, with these features; each call reads them anew."""
        names = self.names if names is None else names
        for cells, place in self.batches([*names, *(self._label_columns if labelled else ())]):
            columns = [_numbers(cells[name], name, place) for name in names]
            labels = self._labels(cells, place) if labelled else (set[Any](), None)
            yield Piece(columns, *labels)

    def frames(self, model: Any) -> Iterator[pd.DataFrame]:
        """Yield all rows in order, with the features of a fitted model."""
        names = feature_names(model)
        for piece in self.pieces(names, labelled=False):
            yield pd.DataFrame(dict(zip(names, piece.columns, strict=True)))

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[Any, "_Place"]]:
        """Yield these columns of all rows as Arrow tables, with the place of their rows."""
        check_names(self.columns, columns)
        rows, any_row = max(1, min(PIECE_ROWS, PIECE_CELLS // len(columns))), False
        for number, file in enumerate(self.files):
            start = 0
            for batch in _batches(file, [*columns], rows):
                cells, lines = pa.table(batch), np.arange(start, start + len(batch))
                if self._drawn:
                    chosen = self._is_chosen(number, start, len(lines))
                    cells, lines = cells.filter(pa.array(chosen)), lines[chosen]
                start += len(batch)
                if len(lines):
                    any_row = True
                    yield cells.combine_chunks(), _Place(file, lines)
        if not any_row:
            where = " in this part of a split" if self._drawn else ""
            raise InputError(f"{self.path} has columns, but no rows{where}.")

    def _is_chosen(self, file: int, start: int, count: int) -> NDArray[np.bool_]:
        """Whether so many rows of a file, from `start` on, are in this part of all splits."""
        chosen = np.ones(count, dtype=bool)
        for level, (share, seed, is_drawn) in enumerate(self._drawn):
            draws = np.random.PCG64(seed_of(seed, "held out", file, *range(level))).advance(start)
            chosen &= (np.random.Generator(draws).random(count) < share) == is_drawn
        return chosen

    def _labels(self, cells: Any, place: "_Place") -> tuple[set[Any], Any]:
        """Return `classes` and `candidates` of a piece."""
        if self._form == "candidates":
            codes, distinct = _distinct(cells[self.candidates])
            parsed = [_names_in(cell, self.separator, ()) for cell in (*distinct, "")]
            is_bad = np.array([not names for names, _ in parsed])[codes]
            if is_bad.any():
                code = int(codes[row := int(is_bad.argmax())])
                value = "" if code < 0 else str(distinct[code])[:SHOWN]
                place.refuse(BadRow(row, str(self.candidates), value, parsed[code][1] or NO_CLASS))
            sets = [names for names, _ in parsed[:-1]]
            names = set[Any]().union(*sets)
            return names, lambda classes: Candidates.of(sets, classes=classes)[codes]
        prefix = getattr(self, str(self._form))
        defaults: Any = read_table.__kwdefaults__
        options = SimpleNamespace(seen=set(), **defaults | {self._form: prefix})
        frame = cells.select(self._label_columns).to_pandas()
        bad, build, _ = read_labels(self._form, frame, np.arange(len(frame)), (), options)
        if bad:
            place.refuse(min(bad))
        y: Any = build(slice(None))
        occurring = y.classes if isinstance(y, Candidates) else y.counted(None)[2]
        return {*occurring.tolist()}, lambda classes: Candidates.of(y, classes=classes)

    def write_predictions(
        self,
        model: Any,
        out: str | Path,
        *,
        error: float = 0.05,
        keep: Sequence[str] = (),
        probabilities: bool = False,
    ) -> int:
        """Predict all rows in pieces, write a Parquet file, and return their number.

        Its columns are those to `keep`, ``label``, ``probability``, ``belief``, ``uncertainty``,
        ``entropy``, ``accepted`` and ``reason``. No row is accepted unless `calibrate_decisions`
        was called before; `error` is the share of accepted rows that may be wrong. With
        `probabilities`, there is a column ``probability of NAME`` for each class.
        """
        names, written, count = feature_names(model), None, 0
        if Path(out).resolve() in [file.resolve() for file in self.files]:
            raise InputError(f"{out} is read, and would be lost. Write to another file.")
        with writing(Path(out)) as file:
            for cells, place in self.batches([*dict.fromkeys([*names, *keep])]):
                columns = [_numbers(cells[name], name, place) for name in names]
                frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
                table = cells.select([*keep])
                for name, values in _predicted(model, frame, error, probabilities).items():
                    if name in keep:
                        raise InputError(f"keep: the output has a column {name!r}, too. Rename it.")
                    table = table.append_column(name, pa.array(values))
                if written is None:
                    written = pq.ParquetWriter(file, table.schema.with_metadata(OURS))
                written.write_table(table.cast(written.schema))
                count += len(frame)
            if written is not None:
                written.close()
        return count


def _predicted(
    model: Any, frame: pd.DataFrame, error: float, probabilities: bool
) -> dict[str, Any]:
    """Return the columns of `write_predictions` for some rows."""
    opinion = model.predict_opinion(frame)
    predicted, measures = measures_of(opinion)
    columns: dict[str, Any] = {"label": model.classes_[predicted]}
    columns |= {name: values.astype(np.float32) for name, values in measures.items()}
    columns["accepted"] = np.zeros(len(frame), dtype=bool)
    columns["reason"] = np.full(len(frame), NO_PROMISE, dtype=object)
    if model.trial_ is not None:
        decision = model.decide(frame, error=error)
        columns["accepted"], columns["reason"] = decision.accepted, decision.reason
    for number, name in enumerate(model.classes_ if probabilities else ()):
        columns[f"probability of {name}"] = opinion.probability[:, number].astype(np.float32)
    return columns


def measures_of(opinion: Opinion) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return the predicted classes, and how certain they are, by name."""
    predicted = opinion.predicted()
    chosen = np.arange(len(predicted)), predicted
    certain = {"probability": opinion.probability[chosen], "belief": opinion.belief[chosen]}
    return predicted, certain | {"uncertainty": opinion.uncertainty, "entropy": opinion.entropy}


@dataclass(frozen=True)
class _Place:
    """Which rows of a file a piece has."""

    file: Path
    lines: NDArray[np.int64]

    def refuse(self, fault: BadRow) -> None:
        """Raise an error about a row of the piece."""
        line = int(self.lines[fault.line])
        text = str(fault).replace(NO_CLASS, "names no class")  # it names an option of `read_table`
        raise InputError(f"{self.file}, row {line:,}: {text}. Correct or drop such rows.")


def is_file_of_predictions(path: Path) -> bool:
    """Whether `write_predictions` wrote a file."""
    with suppress(InputError):
        return (_schema(path).metadata or {}).get(b"robustpll") == OURS[b"robustpll"]
    return False


def _is_number(kind: Any) -> bool:
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in numeric)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open a Parquet or an Arrow file; damage becomes an InputError."""
    if file.suffix.lower() in PARQUET:
        with parquet_file(file, BUFFER) as opened:
            yield opened
        return
    try:
        with pa.OSFile(str(file)) as raw, pa.ipc.open_file(raw) as opened:
            yield opened
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is not an Arrow file, or is damaged ({error}).") from error


def _schema(file: Path) -> Any:
    with _opened(file) as opened:
        return opened.schema_arrow if isinstance(opened, pq.ParquetFile) else opened.schema


def _row_count(file: Path) -> int:
    with _opened(file) as opened:
        if isinstance(opened, pq.ParquetFile):
            return int(opened.metadata.num_rows)
        return sum(len(opened.get_batch(number)) for number in range(opened.num_record_batches))


def _batches(file: Path, columns: list[str], rows: int) -> Iterator[Any]:
    """Yield these columns of a file in record batches of at most so many rows."""
    with _opened(file) as opened:
        if isinstance(opened, pq.ParquetFile):
            wholes = opened.iter_batches(rows, columns=columns)
        else:
            numbers = range(opened.num_record_batches)
            wholes = (opened.get_batch(number).select(columns) for number in numbers)
        for whole in wholes:
            whole.validate(full=True)  # wrong offsets of texts would end the process
            yield from (whole.slice(start, rows) for start in range(0, len(whole), rows))


def _numbers(column: Any, name: str, place: _Place) -> NDArray[Any]:
    """Return a column of finite numbers; raise with file and row otherwise."""
    if not _is_number(column.type):
        fault = f"Column {name!r} of {place.file} holds {column.type}, not numbers"
        raise InputError(f"{fault}. Convert it, or leave it out of `features`.")
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        place.refuse(BadRow(row, name, "", "has no value; fill the gaps first"))
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        column = column.cast(pa.float64())
    numbers = column.to_numpy()
    if not (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):
        row = int(np.argmin(np.isfinite(numbers)))
        place.refuse(BadRow(row, name, str(numbers[row]), "is not finite"))
    return np.asarray(numbers)


def _distinct(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the code of each cell (-1 for a gap), and the distinct cells, lists as tuples."""
    cells = column.combine_chunks()
    cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
    kind = cells.type
    is_list = any(
        is_kind(kind)
        for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )
    if is_list:  # as text, which is encoded much faster
        cells = pc.binary_join(cells.cast(pa.list_(pa.string())), UNIT)
    encoded = cells.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    if is_list:
        convert: Any = int if pa.types.is_integer(kind.value_type) else str
        split = (cell.split(UNIT) if cell else () for cell in distinct)
        distinct = [tuple(map(convert, names)) for names in split]
    return encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(), distinct
