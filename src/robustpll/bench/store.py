"""Results on disk: one Parquet file for each run, either complete or absent."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robustpll._files import write_whole
from robustpll.bench.grid import FORMAT, Condition, Grid, Run, key_of
from robustpll.datasets.catalog import USUAL
from robustpll.errors import InputError, RobustPLLError, counted

if TYPE_CHECKING:
    import pandas as pd

Candidates = NDArray[np.bool_]  # (rows, classes)
REALS = (
    "probability",  # of the predicted class, as is belief
    "belief",
    "uncertainty",
    "entropy",
    "probability_of_truth",  # null where the truth is unknown
    "probability_squared",  # summed over the classes
)
_WORD = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(  # of a table with one row for each prediction
    {"part": _WORD, "condition": _WORD, "row": pa.int32()}
    | {"truth": pa.int16(), "predicted": pa.int16(), "guess": pa.bool_()}
    | dict.fromkeys(REALS, pa.float32())
)
COLUMNS = tuple(SCHEMA.names)
UNKNOWN = -1  # truth of out-of-distribution rows; prediction of rows that an audit fooled
ABOUT = b"robustpll"  # key of the record in a file's footer
JSON_FILES = {"grids": {"name", "methods"}, "failures": {"error"}}  # folders, required keys
TEMPORARY = ".*.*.????????"  # names of `write_whole`: .KEY.parquet.k3x_9abz
STALE = 600.0  # seconds after which a temporary file has no writer any more


class StoreError(RobustPLLError):
    """A file of the store is damaged or foreign, or could not be written."""


class ResultStore:
    """A folder of results.

    `runs/dataset=NAME/method=NAME/KEY.parquet` holds predictions, `failures/KEY.json` errors of
    runs, `candidates/KEY.npz` candidate sets that noise made, and `grids/NAME.json` the grids;
    `sessions/` is of earlier versions. Files are written under a temporary name, synced and
    renamed. If the files of a dataset are not the version of the catalogue, the key
    ends in "-" and 16 digits of their SHA-256.

    Parameters
    ----------
    root : str or Path
        The folder; the first write creates it.

    Examples
    --------
    >>> from robustpll.bench.grid import Grid
    >>> runs = Grid.named("quick").runs()
    >>> len(ResultStore("an-empty-folder").missing(runs)) == len(runs)
    True
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, run: Run) -> Path:
        """The path of a run's predictions."""
        folders = f"dataset={quote(run.dataset, safe='')}/method={quote(run.method.name, safe='')}"
        return self.root / "runs" / folders / f"{run.key}.parquet"

    def versions(self, runs: Iterable[Run]) -> dict[str, Counter[str]]:
        """How many runs are stored on each version of a dataset's files, by dataset."""
        counts: dict[str, Counter[str]] = {}
        for run in runs:
            paths = self.path(run).parent.glob(f"{run.key[:20]}*.parquet")
            versions = (path.stem.partition("-")[2] for path in paths)
            counts.setdefault(run.dataset, Counter()).update(versions)
        return counts

    def about(self, run: Run) -> dict[str, Any] | None:
        """The record of a run; None if it is not stored. A damaged file is a StoreError."""
        path = self.path(run)
        return _record_in(path) if path.exists() else None

    def read(self, run: Run, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Predictions of a run; StoreError if the file is absent or damaged."""
        return _predictions_in(self.path(run), columns)

    def frame(self, runs: Iterable[Run], columns: Sequence[str] = COLUMNS) -> "pd.DataFrame":
        """Predictions of stored runs, after label, dataset and seed; versions are never mixed."""
        import pandas as pd

        names = ["label", "dataset", "seed", *columns]
        frames = [pd.DataFrame(columns=names)]
        for run in of_store(self, runs):
            if not self.lacks(run):
                frame = self.read(run, columns).to_pandas()
                frames.append(frame.assign(label=run.label, dataset=run.dataset, seed=run.seed))
        return pd.concat(frames[1:] or frames, ignore_index=True)[names]

    def lacks(self, run: Run) -> bool:
        """Whether a run is absent, damaged, or lacks some of its conditions."""
        return bool(self.missing([run]))

    def has_any_version(self, run: Run) -> bool:
        """Whether a run is stored on any version of its dataset."""
        versions = self.versions([run])[run.dataset]
        return not all(self.lacks(replace(run, content=version)) for version in versions)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """The runs to do, each key once, with all conditions that are requested or stored."""
        requested: dict[str, tuple[Run, set[Condition]]] = {}
        for run in runs:
            requested.setdefault(run.key, (run, set()))[1].update(run.conditions)
        missing = []
        for run, conditions in requested.values():
            stored: set[Condition] = set()
            with suppress(StoreError):  # absent or damaged
                stored = set(_record_in(self.path(run))["conditions"])
            if not stored or not stored >= conditions:
                ordered = sorted(conditions | stored, key=lambda condition: condition.order)
                missing.append(replace(run, conditions=tuple(ordered)))
        return missing

    def write(self, run: Run, table: pa.Table) -> None:
        """Store predictions `with_record`, and remove the record of an earlier failure."""
        buffer = BytesIO()
        encoding = dict.fromkeys(REALS, "BYTE_STREAM_SPLIT") | {"row": "DELTA_BINARY_PACKED"}
        columns: Any = {"use_dictionary": ["part", "condition"], "column_encoding": encoding}
        pages: Any = {"compression": "zstd", "compression_level": 9, "write_page_checksum": True}
        pq.write_table(table, buffer, **columns, **pages)
        self._write(self.path(run), buffer.getvalue())
        (self.root / "failures" / f"{run.key}.json").unlink(missing_ok=True)

    def failed(self, run: Run, error: str, details: str = "") -> None:
        """Store the error of a run; the run stays missing."""
        record = {"description": run.description, "error": error, "details": details}
        path = self.root / "failures" / f"{run.key}.json"
        self._write(path, json.dumps(record, indent=1).encode())

    def failure(self, run: Run) -> str | None:
        """The error message of a run that failed; None if it did not."""
        path = self.root / "failures" / f"{run.key}.json"
        try:
            return str(_json_in(path)["error"]) if path.exists() else None
        except StoreError:
            return "It failed, but the record of the error is damaged."

    def keep_grid(self, grid: Grid) -> None:
        """Store a grid for `bench status` and `bench report`."""
        self._write(self.root / "grids" / f"{grid.name}.json", grid.to_json().encode())

    def grids(self) -> dict[str, Grid]:
        """The stored grids by name."""
        grids = {}
        for path in sorted((self.root / "grids").glob("*.json")):
            with _reading(path):
                grids[path.stem] = Grid.of_json(path.read_text(encoding="utf-8"))
        return grids

    def keep_candidates(self, key: str, candidates: Candidates) -> None:
        """Store candidate sets (rows, classes) by their noise key, as bits."""
        buffer = BytesIO()
        np.savez(buffer, bits=np.packbits(candidates), shape=np.array(candidates.shape))
        self._write(self.root / "candidates" / f"{key}.npz", buffer.getvalue())

    def candidates(self, key: str) -> Candidates | None:
        """Stored candidate sets by their noise key; None if the file is absent or damaged."""
        with suppress(StoreError):
            return _candidates_in(self.root / "candidates" / f"{key}.npz")
        return None

    def sweep(self) -> None:
        """Remove temporary files of killed writers; other hidden files stay."""
        for folder in ("runs", "candidates", *JSON_FILES):
            for path in (self.root / folder).rglob(TEMPORARY):
                with suppress(OSError):  # another process may remove it, too
                    if time.time() - path.stat().st_mtime > STALE:
                        path.unlink()

    def _write(self, path: Path, content: bytes) -> None:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system, such as a full disk, into a StoreError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        fault = f"{path} could not be written: {reason}. All earlier results are complete"
        raise StoreError(f"{fault}. Free some space, and run the same command again.") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn all errors of a damaged file, of whatever kind, into a StoreError."""
    try:
        yield
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "Move it aside by 'robustpll bench verify --repair', and run the grid again."
        if isinstance(error, InputError):  # of a sound file that names what is unknown here
            remedy = "Use the version of robustpll that wrote it, or move it away."
        raise StoreError(
            f"{path} is damaged or not of this version ({reason}). {remedy}"
        ) from error


def with_record(
    table: pa.Table, run: Run, seconds: Mapping[str, float], facts: Mapping[str, Any]
) -> pa.Table:
    """Predictions of a run with its record in the footer; `seconds` is its share of a bundle."""
    record = {"format": FORMAT, "key": run.key, "description": run.description}
    record |= {"conditions": [*map(vars, run.conditions)], "seconds": seconds, "facts": facts}
    footer = {ABOUT: json.dumps(record, sort_keys=True).encode()}
    return table.cast(SCHEMA).replace_schema_metadata(footer)


def _record_in(path: Path) -> dict[str, Any]:
    """The record in a run's file, whose name is its key."""
    with _reading(path):
        record = json.loads(pq.read_schema(path).metadata[ABOUT])
        if (record["format"], record["key"]) != (FORMAT, path.stem):
            raise ValueError(f"it holds run {record['key']} in format {record['format']}")
        conditions = tuple(Condition(**condition) for condition in record["conditions"])
        seconds = {name: float(record["seconds"][name]) for name in ("train", "examine")}
        kinds = {name: dict(record[name]) for name in ("description", "facts")}
        return {"key": path.stem, "conditions": conditions, "seconds": seconds, **kinds}


def _predictions_in(path: Path, columns: Sequence[str] = COLUMNS) -> pa.Table:
    with _reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read(list(columns)).select(list(columns))
        if not table.schema.equals(pa.schema([SCHEMA.field(name) for name in columns])):
            raise ValueError("its columns have other types")
        return table


def _candidates_in(path: Path) -> Candidates:
    with _reading(path), np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
        rows, classes = (int(size) for size in stored["shape"])
        if stored["bits"].shape != ((rows * classes + 7) // 8,):
            raise ValueError(f"{stored['bits'].shape} are not the bits of {rows} x {classes}")
        bits = np.unpackbits(stored["bits"], count=rows * classes)
        return bits.reshape(rows, classes).astype(bool)


def _json_in(path: Path) -> dict[str, Any]:
    """The content of a grid, session or failure, by the folder it is in."""
    with _reading(path):
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not JSON_FILES[path.parent.name] <= content.keys():
            raise ValueError(f"it has only {', '.join(content)}")
        return content


def _check_run(path: Path) -> None:
    """Check that a file holds the run of its name, with predictions under all its conditions."""
    record, table = _record_in(path), _predictions_in(path)
    with _reading(path):
        if key_of(record["description"]) != path.stem:
            raise ValueError("its name does not match the run it describes")
        pairs = table.select(["part", "condition"]).group_by(["part", "condition"]).aggregate([])
        stored = {(row["part"], row["condition"]) for row in pairs.to_pylist()}
        if stored != {(condition.part, condition.name) for condition in record["conditions"]}:
            raise ValueError("its predictions do not match its conditions")


def damage(store: ResultStore) -> dict[Path, str]:
    """A message for each damaged file of a store, by path; checksums are compared, too."""
    checks: dict[str, Callable[[Path], object]] = {
        "runs/*/*/*.parquet": _check_run,
        "candidates/*.npz": _candidates_in,
        **{f"{folder}/*.json": _json_in for folder in JSON_FILES},
    }
    errors: dict[Path, str] = {}
    for pattern, check in checks.items():
        for path in sorted(store.root.glob(pattern)):
            try:
                check(path)
            except StoreError as error:
                errors[path] = str(error)
    return errors


def set_aside(store: ResultStore, path: Path) -> Path:
    """Move a file to the store's folder `damaged`; never overwrites. Returns the new path."""
    target = store.root / "damaged" / path.relative_to(store.root)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target = target.with_name(f"{path.name}.{time.time_ns()}")
    return path.rename(target)


def of_store(
    store: ResultStore, runs: Iterable[Run], chosen: Mapping[str, str] | None = None
) -> tuple[Run, ...]:
    """The runs on the stored versions of the datasets."""
    # If there are several, `chosen` must name one: they are never mixed. Runs may name their own.
    runs, contents = tuple(runs), {}
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    if unknown := [name for name in chosen or () if name not in datasets]:
        fault = f"A version of {', '.join(unknown)} is chosen, but no run is on it"
        raise InputError(f"{fault}; the runs are on {', '.join(datasets)}.")
    for name, counts in store.versions(run for run in runs if not run.content).items():
        titles = {content or USUAL: counts[content] for content in sorted(counts)} or {USUAL: 0}
        version = (chosen or {}).get(name, next(iter(titles)) if len(titles) == 1 else None)
        if version not in titles:
            listed = ", ".join(f"{title} ({counted(n, 'run')})" for title, n in titles.items())
            raise InputError(
                f"The store has runs on {len(titles)} versions of the file of {name}: {listed}. "
                f"They are never mixed: choose one by --version {name}=VERSION, or in Python by "
                f"versions={{{name!r}: VERSION}}; got {version!r}."
            )
        contents[name] = "" if version == USUAL else version
    return tuple(replace(run, content=run.content or contents[run.dataset]) for run in runs)


def other_versions(store: ResultStore, runs: Sequence[Run]) -> list[str]:
    """A message for each version other than that of the runs on which the store has such runs."""
    contents = {run.dataset: run.content for run in runs}
    return [
        f"{name}: {count} stored runs are on another version of its file ({content or USUAL}) than "
        f"the one that is here ({contents[name] or USUAL}). They do not count."
        for name, counts in store.versions(runs).items()
        for content, count in counts.items()
        if content != contents[name]
    ]
