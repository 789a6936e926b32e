"""From stored predictions to one table: a row for each run and condition, a column per measure.

To add a measure, add one entry to `MEASURES`: it becomes a column of `Summary.runs`, `runs.csv` and
`runs.parquet`, and of the table of runs on the page. Any table may show it by its name.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robustpll._display import Displayed
from robustpll.bench.grid import REAL_WORLD, Grid, GridMethod, Run
from robustpll.bench.store import REALS, ResultStore, StoreError, of_store
from robustpll.datasets.catalog import entry_of
from robustpll.errors import InputError
from robustpll.estimator.abstention import mean_threshold
from robustpll.evaluate.ood import separation
from robustpll.measures import metrics
from robustpll.measures.calibration import reliability
from robustpll.measures.metrics import as_recorded, cdf_area, signed_ks

Floats = NDArray[np.float64]
Columns = dict[str, Any]  # stored predictions of one run under one condition, as arrays
Entropies = tuple[Floats, Floats]  # of test rows (n,) and of out-of-distribution rows (m,)

CURVE_POINTS = 500  # more points cannot be seen in a figure
ERROR = 0.05  # of the rows that a model accepts
LABEL_ERROR = 0.01  # of the labels that `clean` accepts
SMALLEST = 1e-6  # probabilities are stored to six decimals: 0 may mean any smaller number
FORMAT = 1  # of runs.parquet
NOT_RUN = {"reason": "not run", "sentence": "It was not run yet."}
MOST_BYTES = 2**28  # of a runs.parquet in memory: no report writes a larger one


@dataclass(frozen=True)
class Measure:
    """A number that is computed from the predictions of one run under one condition."""

    title: str
    compute: str | Callable[[Columns], Any]  # the column whose mean it is, or a function
    needs: tuple[str, ...] = ("probability",)  # without these columns the measure is NaN
    scale: int = 1  # the factor from stored to shown values: 100 for percent
    decimals: int = 3
    is_loss: bool = False  # whether lower values are better
    in_table: bool = False  # whether the page's table of runs shows it, or only a run's details


_TRUTH, _OOD, _PEOPLE = ("truth", "probability"), ("pair", "probability"), ("people",)
_percent: Any = partial(Measure, scale=100, decimals=1)
MEASURES: dict[str, Measure] = {  # by their columns in `Summary.runs`
    "rows": Measure("rows", lambda c: len(c["row"]), (), decimals=0),
    "accuracy": _percent("accuracy in %", "right", ("truth",), in_table=True),
    "guesses": Measure("guesses in %", "guess", scale=100, decimals=2),
    "entropy": Measure("entropy", "entropy", in_table=True),
    "uncertainty": Measure("uncertainty", "uncertainty", in_table=True),
    "brier": Measure("Brier", "brier", _TRUTH, is_loss=True, in_table=True),
    "log_loss": Measure("log loss", "log_loss", _TRUTH, is_loss=True),
    "ece": _percent("ECE in %", lambda c: reliability(*c["calls"]).error, _TRUTH, is_loss=True),
    "ece_chance": _percent("ECE by chance in %", lambda c: reliability(*c["calls"]).chance, _TRUTH),
    "accepted": _percent("accepted at 5 % in %", "accepted", _TRUTH, in_table=True),
    "accepted_error": _percent("wrong of the accepted in %", "error", _TRUTH, is_loss=True),
    "acceptable": _percent("acceptable at 5 % in %", "acceptable", _TRUTH),
    "labels_accepted": _percent("accepted at 1 % in %", "labels_accepted", _TRUTH),
    "labels_accepted_error": _percent(
        "wrong of those at 1 % in %", "labels_error", _TRUTH, is_loss=True
    ),
    "auroc": Measure("AUROC", lambda c: separation(*c["pair"]).auroc, _OOD, in_table=True),
    "ks": Measure("KS", lambda c: signed_ks(*c["pair"]), _OOD),
    "area": Measure("CDF area", lambda c: cdf_area(*c["pair"]), _OOD),
    "people_cross_entropy": Measure(
        "cross-entropy to people", "cross_entropy", _PEOPLE, is_loss=True
    ),
    "people_rank": Measure("rank correlation with people", "rank_correlation", _PEOPLE),
    "people_auroc": Measure("AUROC of people's disagreement", "disagreement", _PEOPLE),
    "people_possible": _percent("held possible in %", "possible", _PEOPLE),
}
FACTS = ["machine", "torch", "version", "date"]
IDENTITY = ["label", "dataset", "seed", "part", "condition", "epsilon", "other"]
RUN_COLUMNS = ["label", "method", "dataset", "kind", *IDENTITY[2:], *MEASURES]
RUN_COLUMNS += ["seconds_train", "seconds_examine", *FACTS, "key"]
WHY_MISSING = ["reason", "sentence"]
COLUMNS = [*RUN_COLUMNS, *WHY_MISSING]
OOD_COLUMNS = ["label", "dataset", "other", "seeds", "area", "ks", "mmd", "gamma"]


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Displayed):
    """The results of a grid; all frames are in the grid's order, with the columns named above."""

    grid: Grid
    # A row for each planned run and condition, those with results first. The others have a reason:
    # "no data", "not run", "failed" or "unreadable". Undefined measures are NaN.
    planned: pd.DataFrame
    # A row for each label, dataset and OOD dataset: measures of entropies that are pooled over the
    # stored seeds, as published.
    ood: pd.DataFrame
    # Distribution functions of test and OOD entropies by (label, dataset, other), (points, 2).
    curves: Mapping[tuple[str, str, str], tuple[Floats, Floats]]
    # Of datasets with generated candidates: mean number, share of rows with a single one.
    candidates: Mapping[str, tuple[float, float]]
    contents: Mapping[str, str]  # versions of files other than the catalogue's

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The planned runs and conditions that have a result."""
        rows = self.planned.loc[self.planned["reason"].isna(), RUN_COLUMNS]
        return rows.astype({"rows": int}).reset_index(drop=True)

    @cached_property
    def missing(self) -> pd.DataFrame:
        """The planned runs and conditions without a result."""
        rows = self.planned.loc[self.planned["reason"].notna(), [*IDENTITY, *WHY_MISSING]]
        return rows.reset_index(drop=True)

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The datasets that have runs."""
        names = set(self.runs["dataset"])
        return tuple(name for name in self.grid.datasets if name in names)

    @cached_property
    def lines(self) -> tuple[GridMethod, ...]:
        """The methods of the report, ensembles last: the first entry of each label."""
        first = {entry.label: entry for entry in reversed(self.grid.entries)}
        entries = [entry for entry in self.grid.entries if first[entry.label] is entry]
        return tuple(sorted(entries, key=lambda entry: entry.group == "ensemble"))

    @cached_property
    def attacked(self) -> list[str]:
        """Labels of the methods that the grid attacks."""
        labels = set(self.planned["label"][self.planned["condition"].str.startswith("pgd")])
        return [line.label for line in self.lines if line.label in labels]

    @cached_property
    def real_world(self) -> tuple[str, ...]:
        """Those of the paper's six real-world sets that have runs."""
        return tuple(name for name in REAL_WORLD if name in self.stored)

    @cached_property
    def attacked_sets(self) -> tuple[str, ...]:
        """Those of them that have runs under the published attack."""
        return tuple(name for name in self.real_world if self.strengths(name))

    def strengths(self, *datasets: str) -> tuple[float, ...]:
        """Return the epsilons of the published attack on datasets, with 0; () without attack."""
        runs = self.runs[self.runs["dataset"].isin(datasets) & (self.runs["part"] == "test")]
        steps = runs["epsilon"][~runs["condition"].str.startswith("audit")].unique()
        return tuple(sorted(map(float, steps))) if len(steps) > 1 else ()

    @cached_property
    def timing(self) -> pd.DataFrame:
        """The number of runs and their seconds, by label; ensembles last."""
        once = self.runs.drop_duplicates(["label", "key"])  # a run has several conditions
        grouped = once.groupby("label")[["seconds_train", "seconds_examine"]]
        frame = grouped.sum().astype(float)
        frame.insert(0, "runs", grouped.size())
        return frame.loc[[line.label for line in self.lines if line.label in frame.index]]

    @cached_property
    def facts(self) -> dict[str, tuple[str, ...]]:
        """The machines, versions of torch and robustpll, and dates of the runs."""
        return {name: tuple(sorted(set(self.runs[name]))) for name in FACTS}

    def to_parquet(self) -> bytes:
        """Return the file `runs.parquet`: the rows of `planned`, and the rest in the footer."""
        about = {
            "format": FORMAT,
            "grid": json.loads(self.grid.to_json()),
            "ood": self.ood.to_dict("records"),
            "curves": [(*key, *(c.round(5).tolist() for c in p)) for key, p in self.curves.items()],
            "candidates": dict(self.candidates),
            "contents": dict(self.contents),
        }
        table = pa.Table.from_pandas(self.planned, _schema(), preserve_index=False)
        table = table.replace_schema_metadata({b"robustpll": json.dumps(about).encode()})
        buffer = BytesIO()
        pq.write_table(table, buffer, compression="zstd", compression_level=19)
        return buffer.getvalue()


def _schema() -> Any:
    """Return the columns of `runs.parquet`."""
    numbers = ("epsilon", "seconds_train", "seconds_examine", *MEASURES)
    kinds = {"seed": pa.int64()} | dict.fromkeys(numbers, pa.float64())
    return pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])


def read_summary(path: str | Path) -> Summary:
    """Read the `runs.parquet` of a report. Nothing in the file is executed."""
    errors: Any = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError)
    try:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            sizes = [Path(path).stat().st_size, sum(group.total_byte_size for group in groups)]
            sizes.append(1000 * file.metadata.num_rows)  # few bytes may hold many equal rows
            about = json.loads(file.schema_arrow.metadata[b"robustpll"])
            # A file may lack measures that were added later.
            later = {*MEASURES}.difference(file.schema_arrow.names)
            known = pa.schema([field for field in _schema() if field.name not in later])
            alike = file.schema_arrow.equals(known) and about["format"] == FORMAT
            if not alike or max(sizes) > MOST_BYTES:
                raise ValueError("other columns, size or format")
            planned = file.read().to_pandas(ignore_metadata=True).reindex(columns=COLUMNS)
        grid = Grid.of_json(json.dumps(about["grid"]))
        runs = {(run.label, run.dataset, run.seed) for run in grid.runs()}
        if not runs.issuperset(planned[IDENTITY[:3]].itertuples(index=False, name=None)):
            raise ValueError("runs that its grid does not plan")
        ood = pd.DataFrame(about["ood"], columns=OOD_COLUMNS)
        curves = {(m, d, o): (np.array(t), np.array(x)) for m, d, o, t, x in about["curves"]}
        noise = {name: (mean, single) for name, (mean, single) in about["candidates"].items()}
        return Summary(grid, planned, ood, curves, noise, about["contents"])
    except (*errors, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fault = f"{path} is not the runs.parquet of a report, or it is damaged ({reason})"
        raise InputError(f"{fault}. Pass such a file, or a folder of results.") from error


def summarize(store: ResultStore, grid: Grid, versions: Mapping[str, str] | None = None) -> Summary:
    """Compute all measures of a grid's runs from the predictions in a store.

    Runs without a result are listed in `missing`. Memory does not grow with the size of the store.
    Runs on several versions of a dataset are an error, unless `versions` chooses one.

    Parameters
    ----------
    store, grid : ResultStore, Grid
        The results, which may be of other grids, too, and the runs to summarize.
    versions : mapping of str to str, or None
        The version of a dataset's file, by the dataset's name; the error lists the versions.

    Examples
    --------
    >>> grid = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 2})
    >>> summary = summarize(ResultStore("an-empty-folder"), grid)
    >>> len(summary.runs), len(summary.missing), summary.stored
    (0, 2, ())
    """
    runs: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    entropies: dict[tuple[str, str], dict[str, list[Entropies]]] = {}
    planned = of_store(store, grid.runs(), versions)
    for run in planned:
        facts, why_missing, parts = _stored(store, run)
        clean = parts.get(("test", "clean"))
        for condition in run.conditions:
            place, strength = (condition.part, condition.name), condition.epsilon or condition.audit
            values = (run.label, run.dataset, run.seed, *place, strength, condition.ood)
            identity = dict(zip(IDENTITY, values, strict=True))
            columns = parts.get(place)
            if columns is None:
                missing.append(identity | why_missing)
                continue
            if condition.part == "ood" and clean is not None:
                pair = as_recorded(clean["entropy"]), as_recorded(columns["entropy"])
                by_label = entropies.setdefault((run.dataset, condition.ood), {})
                by_label.setdefault(run.label, []).append(pair)
                columns["pair"] = pair
            runs.append(identity | facts | measured(columns))
    stored = {row["dataset"] for row in runs}
    for row in missing:
        if row["reason"] == "not run" and row["dataset"] not in stored:
            entry = entry_of(row["dataset"])
            row["reason"] = "no data"  # the same on any machine, with or without the data
            row["sentence"] = f"No run on {entry.title} is stored; the data are at {entry.source}"
    rows = pd.DataFrame([*runs, *missing], columns=COLUMNS)
    rows = rows.astype(dict.fromkeys(MEASURES, float))
    contents = {run.dataset: run.content for run in planned if run.content}
    return Summary(grid, rows, *_pooled(entropies), _candidates(store, planned), contents)


def _stored(
    store: ResultStore, run: Run
) -> tuple[dict[str, Any], dict[str, str], dict[Any, Columns]]:
    """Return facts about a run, why conditions are missing, predictions by (part, condition)."""
    failure = store.failure(run)
    why = {"reason": "failed", "sentence": failure} if failure else NOT_RUN
    try:
        about = store.about(run)
        if about is None:
            return {}, why, {}
        frame = store.read(run).to_pandas().sort_values("row", kind="stable")
    except StoreError as error:  # a report does not name the folders of a machine
        sentence = str(error).replace(f"{store.root}/", "")
        return {}, {"reason": "unreadable", "sentence": sentence}, {}
    parts = {
        pair: {name: group[name].to_numpy() for name in frame.columns[2:]}
        for pair, group in frame.groupby(["part", "condition"], observed=True)
    }
    facts = {name: str(about["facts"].get(name, "unknown")) for name in FACTS}
    facts |= {f"seconds_{part}": about["seconds"][part] for part in ("train", "examine")}
    if (people := about["facts"].get("people")) and ("test", "clean") in parts:
        parts["test", "clean"]["people"] = people
    facts |= {"method": run.method.name, "kind": entry_of(run.dataset).kind, "key": run.key}
    return facts | {"date": facts["date"][:10]}, why, parts


def _pooled(
    entropies: Mapping[tuple[str, str], Mapping[str, list[Entropies]]],
) -> tuple[pd.DataFrame, dict[tuple[str, str, str], tuple[Floats, Floats]]]:
    """Return measures and curves of entropies that are pooled over the seeds."""
    # The methods of a table share one bandwidth, so a method's MMD depends on the others.
    rows, curves = [], {}
    for (dataset, other), by_label in entropies.items():
        pools = {
            label: tuple(np.concatenate(parts) for parts in zip(*pairs, strict=True))
            for label, pairs in by_label.items()
        }
        values = np.concatenate([np.concatenate(pool) for pool in pools.values()])
        differ = np.ptp(values) > 0  # otherwise the MMD is undefined
        gamma = metrics.published_gamma(values) if differ else math.nan
        for label, (test, ood) in pools.items():
            mmd = metrics.signed_mmd(test, ood, gamma=gamma) if differ else math.nan
            identity = (label, dataset, other, len(by_label[label]))
            rows.append((*identity, cdf_area(test, ood), signed_ks(test, ood), mmd, gamma))
            curves[label, dataset, other] = curve(test), curve(ood)
    return pd.DataFrame(rows, columns=OOD_COLUMNS), curves


def _candidates(store: ResultStore, runs: tuple[Run, ...]) -> dict[str, tuple[float, float]]:
    """Return mean number and share of single candidates, where the store has generated ones."""
    sizes: dict[str, list[Any]] = {}
    for key, name in {run.noise_key: run.dataset for run in runs if run.noise_key}.items():
        if (matrix := store.candidates(key)) is not None:
            sizes.setdefault(name, []).append(matrix.sum(-1))
    counts = {name: np.concatenate(parts) for name, parts in sizes.items()}
    return {name: (float(n.mean()), float((n == 1).mean())) for name, n in counts.items()}


def measured(columns: Columns) -> dict[str, float]:
    """Return all measures of one run under one condition, NaN where they are undefined."""
    # OOD rows have no truth, but the pair of test and OOD entropies. An audit has no probabilities.
    values = columns | {name: columns[name].astype(float) for name in REALS}
    of_truth, right = values["probability_of_truth"], columns["truth"] == columns["predicted"]
    certainty = values["probability"]
    values |= {"right": right, "calls": (certainty, right), **columns.get("people", {})}
    for name, error in (("", ERROR), ("labels_", LABEL_ERROR)):
        accepted = most_certain(certainty, 1 - certainty, error)
        values |= {f"{name}accepted": accepted, f"{name}error": math.nan}
        if accepted.any():
            values[f"{name}error"] = 1 - right[accepted].mean()
    values["acceptable"] = most_certain(certainty, ~right, ERROR)
    values["brier"] = 1 - 2 * of_truth + values["probability_squared"]
    values["log_loss"] = -np.log(of_truth.clip(SMALLEST))
    values["entropy"] = as_recorded(columns["entropy"])
    usable = set(values)
    if (columns["truth"] < 0).any():
        usable.discard("truth")
    if np.isnan(values["probability"]).all():
        usable.discard("probability")
    results = dict.fromkeys(MEASURES, math.nan)
    for name, measure in MEASURES.items():
        if usable.issuperset(measure.needs):
            rule = measure.compute
            results[name] = float(np.mean(values[rule])) if isinstance(rule, str) else rule(values)
    return results


def most_certain(certainty: Floats, wrong: NDArray[Any], error: float) -> NDArray[np.bool_]:
    """Return which rows are in the largest set of most certain rows with this error, (n,)."""
    # The error is the mean of `wrong`: an expectation if it holds probabilities, or the truth.
    order = np.argsort(-certainty, kind="stable")
    threshold = mean_threshold(certainty[order], wrong[order].astype(float), error)
    return np.asarray(certainty >= threshold)


def curve(values: Floats) -> Floats:
    """Return the empirical distribution function as a line of at most 500 points, (points, 2)."""
    points, share = metrics.distribution(values)
    length = points + share  # strictly increasing along the line
    wanted = np.linspace(length[0], length[-1], CURVE_POINTS)
    indices = np.unique(np.searchsorted(length, wanted).clip(max=len(points) - 1))
    return np.column_stack([points[indices], share[indices]])
