"""Results on disk: one Parquet file for each run, there and whole, or not there."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np

from robustpll.bench.drawn import Drawn, Packed
from robustpll.bench.grid import Grid
from robustpll.bench.run import FORMAT, Condition, PlannedRun, Run
from robustpll.bench.versions import of_store
from robustpll.errors import RobustPLLError
from robustpll.files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Content = TypeVar("Content")  # of a JSON file
REALS = (
    "probability",  # of the predicted class, as is belief
    "belief",
    "uncertainty",
    "entropy",
    "probability_of_truth",  # null where the truth is unknown
    "probability_squared",  # summed over the classes
)
COLUMNS = ("part", "condition", "row", "truth", "predicted", "guess", *REALS)
# bytes of one significance together; rows in order as their differences
ENCODINGS = dict.fromkeys(REALS, "BYTE_STREAM_SPLIT") | {"row": "DELTA_BINARY_PACKED"}
UNKNOWN = -1  # the truth of rows of no known class; the prediction of rows that an audit fooled
ABOUT = b"robustpll"  # the key in a file's footer
FOLDERS = ("runs", "failures", "candidates", "grids", "sessions")
TEMPORARY = ".*.*.????????"  # as `write_whole` names files: .KEY.parquet.k3x_9abz
STALE = 600.0  # seconds after which a file under a temporary name is nobody's
SESSION = {"grid": str, "executor": str, "runs": int, "seconds": int | float, "parts": dict}
# What reading a damaged file, or one of somebody else, may raise besides Arrow's own errors.
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class StoreError(RobustPLLError):
    """A file of the store is damaged or foreign, or could not be written."""


def schema() -> "pa.Schema":
    """Of a table of predictions: one row is one prediction.

    >>> schema().names[:6]
    ['part', 'condition', 'row', 'truth', 'predicted', 'guess']
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int8(), pa.string())
    whole = (pa.int32(), pa.int16(), pa.int16(), pa.bool_())
    kinds = [word, word, *whole, *[pa.float32()] * len(REALS)]
    return pa.schema(list(zip(COLUMNS, kinds, strict=True)))


@dataclass(frozen=True)
class About:
    """What a file says of its run, apart from the predictions."""

    key: str
    description: dict[str, Any]
    conditions: tuple[Condition, ...]
    seconds: dict[str, float]  # train, examine: of this run's share of its bundle
    facts: dict[str, Any]  # machine, torch, version, date, models_in_bundle

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_json(cls, plain: Mapping[str, Any], key: str) -> "About":
        """What `to_json` gave, if it is about the run of this key."""
        if (plain["format"], plain["key"]) != (FORMAT, key):
            msg = f"it holds run {plain['key']} in format {plain['format']}"
            raise ValueError(msg)
        seconds = {name: float(value) for name, value in plain["seconds"].items()}
        if not {"train", "examine"} <= seconds.keys():
            msg = "it does not say how long the run took"
            raise ValueError(msg)
        return cls(
            plain["key"],
            dict(plain["description"]),
            tuple(Condition(**condition) for condition in plain["conditions"]),
            seconds,
            dict(plain["facts"]),
        )


class ResultStore:
    """A folder of results.

    `runs/dataset=NAME/method=NAME/KEY.parquet` holds predictions, `failures/KEY.json` why a run
    failed, `candidates/KEY.npz` candidates that noise made, `grids/NAME.json` what was asked for,
    `sessions/` where the time went. Files are written under a temporary name, synced and renamed.
    The key of a run on another version of a dataset than the one that the catalogue knows ends in
    "-" and 16 digits of its content's SHA-256. Keys of version 0.1 end in none.

    Parameters
    ----------
    root : str or Path
        Made when something is written.

    Examples
    --------
    >>> import tempfile
    >>> from robustpll.bench.grid import Grid
    >>> runs = Grid.named("quick").runs()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(ResultStore(folder).missing(runs)) == len(runs)
    True
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, run: Run) -> Path:
        """Where the predictions of a run are, or will be."""
        folders = f"dataset={quote(run.dataset, safe='')}/method={quote(run.method.name, safe='')}"
        return self.root / "runs" / folders / f"{run.key}.parquet"

    def contents(self, run: Run) -> tuple[str, ...]:
        """The versions of its dataset on which a run is stored, whichever it names itself."""
        paths = self.path(run).parent.glob(f"{run.recipe}*.parquet")
        matches = (re.fullmatch(r"[0-9a-f]{20}(?:-([0-9a-f]{16}))?", path.stem) for path in paths)
        return tuple(sorted(match[1] or "" for match in matches if match))

    def about(self, run: Run) -> About | None:
        """What is stored of a run; None if nothing is. A damaged file is a StoreError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path(run)
        if not path.exists():
            return None
        try:
            return About.of_json(json.loads(pq.read_schema(path).metadata[ABOUT]), run.key)
        except (pa.ArrowException, *DAMAGE) as error:
            raise damaged(path, error) from error

    def read(self, run: Run, columns: Sequence[str] | None = None) -> "pa.Table":
        """Predictions of a run; StoreError if there are none, or the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path(run)
        try:
            wanted = None if columns is None else list(columns)
            # from memory: by its path Arrow would take folders such as method=... for columns
            source = pa.BufferReader(path.read_bytes())
            table = pq.read_table(source, columns=wanted, page_checksum_verification=True)
            if table.schema != pa.schema([schema().field(name) for name in wanted or COLUMNS]):
                msg = f"its columns are {', '.join(map(str, table.schema.names))}"
                raise ValueError(msg)
        except (pa.ArrowException, *DAMAGE) as error:
            raise damaged(path, error) from error
        return table

    def frame(
        self, planned: Iterable[PlannedRun], columns: Sequence[str] = COLUMNS
    ) -> "pd.DataFrame":
        """Predictions of all runs that are here, with columns label, dataset and seed before.

        Runs on several versions of a dataset are refused, unless they are named.
        """
        import pandas as pd

        frames = []
        for each in of_store(self, planned):
            if self.lacks(each):
                continue
            frame = self.read(each.run, columns).to_pandas()
            named = {"label": each.label, "dataset": each.run.dataset, "seed": each.run.seed}
            frames.append(frame.assign(**named)[[*named, *frame.columns]])
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def lacks(self, planned: PlannedRun) -> bool:
        """Whether a run is not here, damaged, or was not examined in all ways asked for."""
        return bool(self.missing([planned]))

    def missing(self, planned: Iterable[PlannedRun]) -> list[PlannedRun]:
        """What is still to run, each run once, to be examined in all ways asked for or known."""
        wanted: dict[str, PlannedRun] = {}
        for each in planned:
            known = wanted.get(each.run.key, each)
            wanted[each.run.key] = replace(known, conditions=_union(known, each.conditions))
        found = []
        for each in wanted.values():
            try:
                about = self.about(each.run)
            except StoreError:
                about = None
            before = about.conditions if about else ()
            if about is None or not set(each.conditions) <= set(before):
                found.append(replace(each, conditions=_union(each, before)))
        return found

    def damaged(self, planned: Iterable[PlannedRun]) -> list[str]:
        """A sentence for each file that cannot be read."""
        sentences = []
        for each in planned:
            try:
                self.about(each.run)
            except StoreError as error:
                sentences.append(str(error))
        return list(dict.fromkeys(sentences))

    def write(self, run: Run, table: "pa.Table", about: About) -> None:
        """Keep predictions; a failure of the run is forgotten."""
        import pyarrow.parquet as pq

        footer = {ABOUT: json.dumps(about.to_json(), sort_keys=True).encode()}
        buffer = BytesIO()
        pq.write_table(
            table.cast(schema()).replace_schema_metadata(footer),
            buffer,
            compression="zstd",
            compression_level=9,
            use_dictionary=["part", "condition"],
            column_encoding=ENCODINGS,
            write_page_checksum=True,
            store_schema=True,
        )
        self._write(self.path(run), buffer.getvalue())
        self._failure_path(run).unlink(missing_ok=True)

    def failed(self, run: Run, error: str, details: str = "") -> None:
        """Keep why a run failed; it stays missing."""
        plain = {
            "key": run.key,
            "description": run.description,
            "error": error,
            "details": details,
            "machine": platform.node(),
            "date": now(),
        }
        self._write(self._failure_path(run), json.dumps(plain, indent=1).encode())

    def failure(self, run: Run) -> str | None:
        """Why a run failed last time, in a sentence; None if it did not."""
        try:
            return str(json.loads(self._failure_path(run).read_text())["error"])
        except FileNotFoundError:
            return None
        except DAMAGE:
            return "It failed, but the note about it is damaged."

    def _failure_path(self, run: Run) -> Path:
        return self.root / "failures" / f"{run.key}.json"

    def keep_grid(self, grid: Grid) -> None:
        """So that status and report know what was asked for."""
        path = self.root / "grids" / f"{grid.name}.json"
        content = grid.to_json().encode()
        if not path.exists() or path.read_bytes() != content:
            self._write(path, content)

    def grids(self) -> dict[str, Grid]:
        """What was asked for, by name; the latest last."""
        paths = sorted((self.root / "grids").glob("*.json"), key=lambda path: path.stat().st_mtime)
        return {path.stem: _json(path, Grid.of_json) for path in paths}

    def keep_candidates(self, of: Drawn, packed: Packed) -> None:
        """Those that noise made for the training rows of a seed."""
        buffer = BytesIO()
        shape = np.array([packed.rows, packed.classes])
        np.savez(buffer, bits=np.frombuffer(packed.bits, np.uint8), shape=shape)
        self._write(self._candidates_path(of), buffer.getvalue())

    def candidates(self, of: Drawn) -> Packed | None:
        """Those that are kept; None if there are none, or the file is damaged."""
        try:
            return packed_in(self._candidates_path(of))
        except (OSError, StoreError):
            return None

    def _candidates_path(self, of: Drawn) -> Path:
        return self.root / "candidates" / f"{of.key}.npz"

    def keep_session(self, name: str, facts: Mapping[str, Any]) -> None:
        """Where the time of a `bench run` went."""
        self._write(self.root / "sessions" / f"{name}.json", json.dumps(facts, indent=1).encode())

    def sessions(self) -> dict[str, dict[str, Any]]:
        """All of them by name, the earliest first."""
        paths = sorted((self.root / "sessions").glob("*.json"))
        return {path.stem: _json(path, _session) for path in paths}

    def sweep(self) -> None:
        """Remove what writers left under temporary names when they were killed, and no more.

        The folder may be somebody's project, with hidden files of its own.
        """
        for folder in FOLDERS:
            for path in (self.root / folder).rglob(TEMPORARY):
                with suppress(OSError):  # another process sweeps, too
                    if time.time() - path.stat().st_mtime > STALE:
                        path.unlink()

    def _write(self, path: Path, content: bytes) -> None:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses, a full disk say, as a sentence; that a file exists is no refusal."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        msg = (
            f"{path} could not be written: {reason}. What was written before is whole; make room, "
            "and run the same command again."
        )
        raise StoreError(msg) from error


def now() -> str:
    """The time of day in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _union(planned: PlannedRun, further: Iterable[Condition]) -> tuple[Condition, ...]:
    """All conditions, in the order in which a run is examined."""
    return tuple(sorted({*planned.conditions, *further}, key=lambda each: each.order))


def packed_in(path: Path) -> Packed:
    """Candidates from their file; StoreError if it is damaged."""
    content = path.read_bytes()
    try:
        with np.load(BytesIO(content), allow_pickle=False) as stored:
            rows, classes = (int(size) for size in stored["shape"])
            return Packed(stored["bits"].tobytes(), rows, classes)
    except Exception as error:  # of whatever kind: for damaged files NumPy promises none
        raise damaged(path, error) from error


def _json(path: Path, of_text: Callable[[str], Content]) -> Content:
    try:
        return of_text(path.read_text(encoding="utf-8"))
    except DAMAGE as error:
        raise damaged(path, error) from error


def _session(text: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(text)
    for name, kind in SESSION.items():
        if not isinstance(facts[name], kind):
            msg = f"{name} is {facts[name]!r}"
            raise TypeError(msg)
    sum(map(float, facts["parts"].values()))  # refuses what are no numbers
    return facts


def damaged(path: Path, error: Exception) -> StoreError:
    """What is said of a file that cannot be read."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return StoreError(
        f"{path} is damaged or not of this benchmark ({reason}). Move it aside by "
        "'robustpll bench verify --repair', and run the grid again."
    )
