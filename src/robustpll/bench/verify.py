"""Looking through all that a store holds, and moving aside what is damaged."""

from collections.abc import Callable
from pathlib import Path

from robustpll.bench.run import key_of, with_content
from robustpll.bench.store import ResultStore
from robustpll.bench.stored_files import (
    StoreError,
    about_in,
    damaged,
    failure_in,
    grid_text_in,
    packed_in,
    predictions_in,
    session_in,
)

ASIDE = "damaged"  # the folder of a store for what was moved aside


def damage(store: ResultStore) -> dict[Path, str]:
    """A sentence for each file of a store that cannot be read to its end, by its path.

    Every file is read as a whole; the checksums of the predictions are compared.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     damage(ResultStore(folder))
    {}
    """
    sentences = {}
    for pattern, check in CHECKS.items():
        for path in sorted(store.root.glob(pattern)):
            try:
                check(path)
            except StoreError as error:
                if path.exists():  # else another process moved it meanwhile
                    sentences[path] = str(error)
    return sentences


def set_aside(store: ResultStore, path: Path) -> Path:
    """Move a file to where no run looks for it, and say where that is; nothing is overwritten."""
    target = store.root / ASIDE / path.relative_to(store.root)
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(f"{path.name}.{number}")
    return path.rename(target)


def _check_run(path: Path) -> None:
    """Whether it is the run that its name says, and has predictions under all its conditions."""
    about, table = about_in(path, path.stem), predictions_in(path)
    recipe = {name: value for name, value in about.description.items() if name != "content"}
    if with_content(key_of(recipe), str(about.description.get("content", ""))) != path.stem:
        raise damaged(path, ValueError("its name does not go with what it says of its run"))
    pairs = table.select(["part", "condition"]).group_by(["part", "condition"]).aggregate([])
    stored = {(row["part"], row["condition"]) for row in pairs.to_pylist()}
    if stored != {(condition.part, condition.name) for condition in about.conditions}:
        raise damaged(path, ValueError("its predictions do not go with what it says of them"))


CHECKS: dict[str, Callable[[Path], object]] = {
    "runs/*/*/*.parquet": _check_run,
    "candidates/*.npz": packed_in,
    "grids/*.json": grid_text_in,
    "sessions/*.json": session_in,
    "failures/*.json": failure_in,
}
