"""From stored predictions to measures: one row for each run and condition."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.measures import (
    Columns,
    Curves,
    Entropies,
    by_condition,
    compared,
    curve,
    measured,
    pooled,
    separated,
)
from robustpll.bench.run import noise_key
from robustpll.bench.store import ResultStore, RunResult, StoreError, of_store
from robustpll.datasets.catalog import entry_of
from robustpll.measures.metrics import as_recorded
from robustpll.methods import Method

if TYPE_CHECKING:
    import pandas as pd

CLEAN = ("test", "clean")
RUN_COLUMNS = (
    *("label", "method", "dataset", "kind", "seed", "part", "condition", "epsilon", "other"),
    *("rows", "accuracy", "guesses", "entropy", "uncertainty", "brier", "log_loss", "ece"),
    *("auroc", "ks", "area", "seconds_train", "seconds_examine", "machine", "key"),
)
OOD_COLUMNS = (
    *("label", "dataset", "other", "seeds", "asked", "area", "area_exact", "ks", "mmd"),
    *("mmd_median", "gamma", "auroc"),
)
MISSING_COLUMNS = (
    *("label", "dataset", "seed", "part", "condition", "epsilon", "other", "reason", "sentence"),
)
DATASET_COLUMNS = (
    *("dataset", "title", "kind", "rows", "features", "classes", "candidates", "single"),
)
TIMING_COLUMNS = ("label", "runs", "models", "seconds_train", "seconds_examine", "seconds", "share")
FACTS = ("machine", "torch", "version", "date")


@dataclass(frozen=True)
class Line:
    """A line of the report: a method, by its name there."""

    label: str
    method: str  # as in METHODS: "proden"
    title: str  # as in the paper: "Proden"
    group: Literal["single", "ensemble"]  # methods are compared within their group
    attacked: bool  # by this grid
    as_published: bool  # whether its settings are the paper's


@dataclass(frozen=True, eq=False)
class Summary:
    """What the runs of a grid amount to; all frames are in the grid's order.

    Attributes
    ----------
    grid : Grid
        What was asked for.
    lines : tuple of Line
        The methods.
    runs : DataFrame
        One row for each stored run and condition: label, method, dataset, kind, seed, part,
        condition, epsilon, other (the OOD dataset), rows, accuracy, guesses, entropy, uncertainty,
        brier, log_loss, ece (as of `calibration_report`), auroc, ks, area (these three of OOD rows
        of one seed), seconds_train, seconds_examine, machine, key. What a part does not have is
        NaN: of an audit there is the accuracy alone.
    ood : DataFrame
        One row for each label, dataset and other: seeds (stored), asked, area, area_exact, ks,
        mmd, mmd_median, gamma, auroc; of entropies pooled over the seeds, as published.
    missing : DataFrame
        One row for each run and condition that the grid asks for and the store lacks: label,
        dataset, seed, part, condition, epsilon, other, reason ("no data", "not run", "failed",
        "unreadable"), sentence.
    timing : DataFrame
        One row for each label that has runs: runs, models (per run; 0 if it has no networks),
        seconds_train, seconds_examine (in all), seconds (of both, per run), share (of the seconds
        of all labels).
    datasets : DataFrame
        One row for each dataset of the grid: dataset, title, kind, rows, features, classes,
        candidates (on average), single (share of rows with one); the last two of training rows,
        NaN where the store does not tell.
    curves : mapping of (label, dataset, other) to Curves
        For the figure of entropies.
    facts : mapping of str to tuple of str
        Where the numbers come from: machine, torch, version, date (days); each once, sorted.
    sessions : mapping of str to mapping
        Each `bench run` of the grid by when it began: executor, runs, seconds (by the clock), and
        parts, where these went, summed over all processes.
    contents : mapping of str to str
        Of which version of a dataset's file the runs are, as of `Dataset.content`; those that are
        not named are of the version that the catalogue knows.
    """

    grid: Grid
    lines: tuple[Line, ...]
    runs: "pd.DataFrame"
    ood: "pd.DataFrame"
    missing: "pd.DataFrame"
    timing: "pd.DataFrame"
    datasets: "pd.DataFrame"
    curves: Mapping[tuple[str, str, str], Curves]
    facts: Mapping[str, tuple[str, ...]]
    sessions: Mapping[str, Mapping[str, Any]]
    contents: Mapping[str, str] = field(default_factory=dict)

    @property
    def stored(self) -> tuple[str, ...]:
        """Datasets that have runs, in the grid's order."""
        found = set(self.runs["dataset"])
        return tuple(name for name in self.grid.datasets if name in found)


@dataclass(frozen=True)
class _Found:
    """What is gathered run by run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    lacking: list[dict[str, Any]] = field(default_factory=list)
    entropies: dict[tuple[str, str], dict[str, list[Entropies]]] = field(default_factory=dict)
    facts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def summarize(store: ResultStore, grid: Grid, versions: Mapping[str, str] | None = None) -> Summary:
    """All measures of a grid's runs, by the predictions in a store.

    A run that is not there, failed or cannot be read is named in `missing`; no number stands for
    it. Files are read one by one, so that memory does not grow with the store. Runs on several
    versions of a dataset are never mixed: it is an error if there are such, unless one is chosen.

    Parameters
    ----------
    store : ResultStore
        It may hold runs of other grids, too.
    grid : Grid
        Which runs are meant.
    versions : mapping of str to str, or None
        By a dataset's name, on which version of its file: as the error lists them.

    Examples
    --------
    >>> import tempfile
    >>> grid = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = summarize(ResultStore(folder), grid)
    >>> len(summary.runs), len(summary.missing), summary.stored
    (0, 2, ())
    """
    found = _Found()
    runs = of_store(store, grid.runs(), versions)
    for planned in runs:
        _gather(found, store, planned)
    contents = {run.run.dataset: run.run.content for run in runs if run.run.content}
    _name_absent(found)
    ood, curves = _ood(found, grid)
    return Summary(
        grid,
        _lines(grid),
        _frame(found.rows, RUN_COLUMNS),
        _frame(ood, OOD_COLUMNS),
        _frame(found.lacking, MISSING_COLUMNS),
        _frame(_timing(found, grid), TIMING_COLUMNS),
        _frame(_datasets(store, grid, contents), DATASET_COLUMNS),
        curves,
        {name: tuple(sorted(found.facts[name])) for name in FACTS},
        {
            name: {key: told[key] for key in ("executor", "runs", "seconds", "parts")}
            for name, told in store.sessions().items()
            if told["grid"] == grid.name
        },
        contents,
    )


def _gather(found: _Found, store: ResultStore, planned: PlannedRun) -> None:
    """Measures of one run, or why there are none."""
    about, stored = None, dict[tuple[str, str], Columns]()
    reason, sentence = "not run", "It was not run yet."
    if failure := store.failure(planned.run):
        reason, sentence = "failed", failure
    try:
        about = store.about(planned.run)
        stored = by_condition(store.read(planned.run)) if about else {}
    except StoreError as error:
        # A report does not name machines' folders.
        reason, sentence = "unreadable", str(error).replace(f"{store.root}/", "")
    for condition in planned.conditions:
        if about and (condition.part, condition.name) in stored:
            found.rows.append(_row(found, planned, condition, about, stored))
        else:
            told = {"reason": reason, "sentence": sentence}
            found.lacking.append(_identity(planned, condition) | told)


def _row(
    found: _Found,
    planned: PlannedRun,
    condition: Condition,
    about: RunResult,
    stored: dict[tuple[str, str], Columns],
) -> dict[str, Any]:
    columns, run = stored[condition.part, condition.name], planned.run
    row = {
        **_identity(planned, condition),
        "method": run.method.name,
        "kind": entry_of(run.dataset).kind,
        **measured(columns),
        "seconds_train": float(about.seconds["train"]),
        "seconds_examine": float(about.seconds["examine"]),
        "machine": str(about.facts.get("machine", "unknown")),
        "key": run.key,
    }
    if condition.part == "ood" and CLEAN in stored:
        both = Entropies(*(as_recorded(each["entropy"]) for each in (stored[CLEAN], columns)))
        of_set = found.entropies.setdefault((run.dataset, condition.ood), {})
        of_set.setdefault(planned.label, []).append(both)
        row |= separated(both)
    for name in FACTS:
        fact = str(about.facts.get(name, "unknown"))
        found.facts[name].add(fact[:10] if name == "date" else fact)
    return row


def _identity(planned: PlannedRun, condition: Condition) -> dict[str, Any]:
    return {
        "label": planned.label,
        "dataset": planned.run.dataset,
        "seed": planned.run.seed,
        "part": condition.part,
        "condition": condition.name,
        "epsilon": condition.epsilon or condition.audit,
        "other": condition.ood,
    }


def _name_absent(found: _Found) -> None:
    """A dataset of which nothing is stored is not one that was forgotten run by run.

    This is told by the store alone: the same store gives the same report, on any machine.
    """
    stored = {row["dataset"] for row in found.rows}
    for row in found.lacking:
        if row["reason"] == "not run" and row["dataset"] not in stored:
            entry = entry_of(row["dataset"])
            row["reason"] = "no data"
            row["sentence"] = f"No run on {entry.title} is stored; the data are at {entry.source}"


def _lines(grid: Grid) -> tuple[Line, ...]:
    planned = grid.runs()
    attacked = {each.label for each in planned if any(c.epsilon for c in each.conditions)}
    other = {each.label for each in grid.entries if each.method != type(each.method).paper()}
    return tuple(
        Line(
            label,
            method.name,
            method.title,
            "ensemble" if method.family == "ensemble" else "single",
            label in attacked,
            label not in other,
        )
        for label, method in _methods(grid).items()
    )


def _methods(grid: Grid) -> dict[str, Method]:
    """Of each label the first; all are of one kind."""
    found: dict[str, Method] = {}
    for each in grid.entries:
        found.setdefault(each.label, each.method)
    return found


def _ood(
    found: _Found, grid: Grid
) -> tuple[list[dict[str, Any]], dict[tuple[str, str, str], Curves]]:
    """Measures and curves of entropies that are pooled over the seeds."""
    rows, curves = [], {}
    for (dataset, other), runs in found.entropies.items():
        together = {label: pooled(each) for label, each in runs.items()}
        measures = compared(together)
        for label, both in together.items():
            counts = {"seeds": len(runs[label]), "asked": len(grid.seeds)}
            named = {"label": label, "dataset": dataset, "other": other}
            rows.append(named | counts | measures[label])
            curves[label, dataset, other] = Curves(curve(both.test), curve(both.ood))
    return rows, curves


def _timing(found: _Found, grid: Grid) -> list[dict[str, Any]]:
    seconds = {  # of each run once, whatever the conditions
        (row["label"], row["key"]): (row["seconds_train"], row["seconds_examine"])
        for row in found.rows
    }
    whole = math.fsum(chain(*seconds.values()))
    rows = []
    for name, method in _methods(grid).items():
        runs = [both for (label, _), both in seconds.items() if label == name]
        if runs:
            train, examine = map(math.fsum, zip(*runs, strict=True))
            models = getattr(method, "members", 0)
            share = (train + examine) / (whole or 1.0)
            costs = (len(runs), models, train, examine, (train + examine) / len(runs), share)
            rows.append(dict(zip(TIMING_COLUMNS, (name, *costs), strict=True)))
    return rows


def _datasets(store: ResultStore, grid: Grid, contents: Mapping[str, str]) -> list[dict[str, Any]]:
    """Facts of the datasets; candidates that noise made are counted where the store has them."""
    rows = []
    for name in grid.datasets:
        entry, noise = entry_of(name), grid.noise_of(name)
        mean = single = math.nan
        if entry.candidates is not None:
            mean = entry.candidates
        elif noise is not None:
            content = contents.get(name, "")
            keys = [noise_key(name, noise, seed, content) for seed in grid.seeds]
            drawn = [matrix for key in keys if (matrix := store.candidates(key)) is not None]
            sizes = [matrix.sum(-1) for matrix in drawn]
            if sizes:
                every = np.concatenate(sizes)
                mean, single = float(every.mean()), float((every == 1).mean())
        facts = (entry.title, entry.kind, entry.rows, entry.features, entry.classes)
        rows.append(dict(zip(DATASET_COLUMNS, (name, *facts, mean, single), strict=True)))
    return rows


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows, columns=list(columns))
