"""Results on disk: one Parquet file for each run, there and whole, or not there."""

import json
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from robustpll._files import write_whole
from robustpll.bench.grid import Grid
from robustpll.bench.noise_cache import Drawn, Packed
from robustpll.bench.run import Condition, PlannedRun, Run
from robustpll.bench.stored_files import (
    ABOUT,
    COLUMNS,
    REALS,
    About,
    StoreError,
    about_in,
    failure_in,
    grid_in,
    packed_in,
    predictions_in,
    schema,
    session_in,
)
from robustpll.bench.versions import of_store

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# bytes of one significance together; rows in order as their differences
ENCODINGS = dict.fromkeys(REALS, "BYTE_STREAM_SPLIT") | {"row": "DELTA_BINARY_PACKED"}
FOLDERS = ("runs", "failures", "candidates", "grids", "sessions")
TEMPORARY = ".*.*.????????"  # as `write_whole` names files: .KEY.parquet.k3x_9abz
STALE = 600.0  # seconds after which a file under a temporary name is nobody's


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
        path = self.path(run)
        return about_in(path, run.key) if path.exists() else None

    def read(self, run: Run, columns: Sequence[str] = COLUMNS) -> "pa.Table":
        """Predictions of a run; StoreError if there are none, or the file is damaged."""
        return predictions_in(self.path(run), columns)

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
        path = self._failure_path(run)
        try:
            return failure_in(path) if path.exists() else None
        except StoreError:
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
        return {path.stem: grid_in(path) for path in paths}

    def keep_candidates(self, of: Drawn, packed: Packed) -> None:
        """Those that noise made for the training rows of a seed."""
        buffer = BytesIO()
        shape = np.array([packed.rows, packed.classes])
        np.savez(buffer, bits=np.frombuffer(packed.bits, np.uint8), shape=shape)
        self._write(self._candidates_path(of), buffer.getvalue())

    def candidates(self, of: Drawn) -> Packed | None:
        """Those that are kept; None if there are none, or the file is damaged."""
        path = self._candidates_path(of)
        try:
            return packed_in(path) if path.exists() else None
        except StoreError:
            return None

    def _candidates_path(self, of: Drawn) -> Path:
        return self.root / "candidates" / f"{of.key}.npz"

    def keep_session(self, name: str, facts: Mapping[str, Any]) -> None:
        """Where the time of a `bench run` went."""
        self._write(self.root / "sessions" / f"{name}.json", json.dumps(facts, indent=1).encode())

    def sessions(self) -> dict[str, dict[str, Any]]:
        """All of them by name, the earliest first."""
        paths = sorted((self.root / "sessions").glob("*.json"))
        return {path.stem: session_in(path) for path in paths}

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
