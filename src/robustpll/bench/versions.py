"""Which version of a dataset's files runs are about: those that are here, or those of a store."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from robustpll.bench.run import PlannedRun
from robustpll.datasets.catalog import USUAL, version_here
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.bench.store import ResultStore


def of_files(planned: Iterable[PlannedRun]) -> tuple[PlannedRun, ...]:
    """The runs on the files that are here; each file is read once at the most.

    >>> from robustpll.bench.grid import Grid
    >>> runs = Grid.named("quick").runs()
    >>> of_files(runs) == runs  # without files there are no versions
    True
    """
    planned = tuple(planned)
    here = {name: version_here(name) for name in {run.run.dataset for run in planned}}
    return tuple(_on(run, here[run.run.dataset]) for run in planned)


def of_store(
    store: "ResultStore", planned: Iterable[PlannedRun], chosen: Mapping[str, str] | None = None
) -> tuple[PlannedRun, ...]:
    """The runs on those versions of the datasets of which a store has runs.

    Where it has several of one dataset, `chosen` must name one: their numbers never go together.
    Runs that name a version themselves stay as they are.
    """
    planned, chosen = tuple(planned), chosen or {}
    if unknown := sorted(set(chosen) - {run.run.dataset for run in planned}):
        msg = f"A version is chosen of {', '.join(unknown)}, on which the grid has no run."
        raise InputError(msg)
    counts: dict[str, Counter[str]] = {}
    for run in planned:
        counts.setdefault(run.run.dataset, Counter()).update(store.contents(run.run))
    versions = {name: _the_one(name, counts[name], chosen.get(name)) for name in counts}
    return tuple(run if run.run.content else _on(run, versions[run.run.dataset]) for run in planned)


def is_stored(store: "ResultStore", planned: PlannedRun) -> bool:
    """Whether a store has a run, on whatever version of its dataset."""
    return not all(store.lacks(_on(planned, content)) for content in store.contents(planned.run))


def of_others(store: "ResultStore", planned: Iterable[PlannedRun]) -> list[str]:
    """A sentence for each dataset of which a store has runs on other versions than the planned."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for run in planned:
        others = [content for content in store.contents(run.run) if content != run.run.content]
        counts.setdefault((run.run.dataset, run.run.content), Counter()).update(others)
    return [
        f"{name}: {count} stored runs are on another version of its file ({content or USUAL}) than "
        f"the one that is here ({here or USUAL}). They stay in the store, and do not count."
        for (name, here), others in counts.items()
        for content, count in sorted(others.items())
    ]


def _on(planned: PlannedRun, content: str) -> PlannedRun:
    return replace(planned, run=replace(planned.run, content=content))


def _the_one(name: str, counts: Counter[str], chosen: str | None) -> str:
    """The version that is chosen, or else the only one."""
    listed = ", ".join(f"{content or USUAL} ({counts[content]} runs)" for content in sorted(counts))
    if chosen is not None:
        content = "" if chosen == USUAL else chosen
        if content not in counts:
            msg = (
                f"No run on the version {chosen!r} of {name} is stored; stored: {listed or 'none'}."
            )
            raise InputError(msg)
        return content
    if len(counts) > 1:
        first = max(counts)
        msg = (
            f"The store has runs on {len(counts)} versions of the file of {name}: {listed}. Their "
            f"numbers do not go together. Choose one: --version {name}={first}, or in Python "
            f"versions={{{name!r}: {first!r}}}."
        )
        raise InputError(msg)
    return next(iter(counts), "")
