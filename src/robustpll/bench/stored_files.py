"""What the files of a store hold, and refusals of damaged ones."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from robustpll.bench.grid import Grid
from robustpll.bench.noise_cache import Packed
from robustpll.bench.run import FORMAT, Condition
from robustpll.errors import InputError, RobustPLLError

if TYPE_CHECKING:
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
UNKNOWN = -1  # the truth of rows of no known class; the prediction of rows that an audit fooled
ABOUT = b"robustpll"  # the key in a file's footer
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


def about_in(path: Path, key: str) -> About:
    """What the file of a run says of it; a damaged file, or one of another run, is a StoreError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return About.of_json(json.loads(pq.read_schema(path).metadata[ABOUT]), key)
    except (pa.ArrowException, *DAMAGE) as error:
        raise damaged(path, error) from error


def predictions_in(path: Path, columns: Sequence[str] = COLUMNS) -> "pa.Table":
    """These columns of the file of a run; StoreError if it is damaged, or not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # from memory: by its path Arrow would take folders such as method=... for columns
        source = pa.BufferReader(path.read_bytes())
        table = pq.read_table(source, columns=list(columns), page_checksum_verification=True)
        _refuse_other_columns(table, columns)
    except (pa.ArrowException, *DAMAGE) as error:
        raise damaged(path, error) from error
    return table


def _refuse_other_columns(table: "pa.Table", columns: Sequence[str]) -> None:
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    if kinds != {name: schema().field(name).type for name in columns}:
        msg = f"its columns are {', '.join(map(str, table.schema.names))}"
        raise ValueError(msg)


def packed_in(path: Path) -> Packed:
    """Candidates from their file; StoreError if it is damaged."""
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            rows, classes = (int(size) for size in stored["shape"])
            return Packed(stored["bits"].tobytes(), rows, classes)
    except Exception as error:  # of whatever kind: for damaged files NumPy promises none
        raise damaged(path, error) from error


def grid_text_in(path: Path) -> str:
    """A grid as it is written; StoreError if the file is damaged."""
    return _json(path, _plain_grid)


def grid_in(path: Path) -> Grid:
    """A grid from its file; StoreError if it is damaged, or names what is not known here."""
    try:
        return Grid.of_json(grid_text_in(path))
    except InputError as error:
        msg = f"{path} is a grid that cannot be read here: {error}"
        raise StoreError(msg) from error
    except DAMAGE as error:
        raise damaged(path, error) from error


def _plain_grid(text: str) -> str:
    """The same text, if it is that of a grid."""
    plain = json.loads(text)
    if not isinstance(plain["name"], str) or not all(method["name"] for method in plain["methods"]):
        msg = "it has no name, or methods without one"
        raise ValueError(msg)
    return text


def session_in(path: Path) -> dict[str, Any]:
    """Where the time of a `bench run` went; StoreError if the file is damaged."""
    return _json(path, _session)


def failure_in(path: Path) -> str:
    """Why a run failed; StoreError if the file is damaged."""
    return _json(path, lambda text: str(json.loads(text)["error"]))


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
