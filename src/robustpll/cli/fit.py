"""`robustpll fit`: trains a model on a table, evaluates it and writes it to a file."""

import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from typer import BadParameter, Option

from robustpll.cli import options as shared
from robustpll.cli.messages import refusals, refuse_unwritable, warnings_said
from robustpll.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.tables.read import Table

Rows = NDArray[np.int64]

MIN_HELD_OUT = 30  # rows, for decisions and prediction sets
ERROR, COVERAGE = 0.05, 0.9  # defaults of decisions and prediction sets


@shared.with_options
def fit(
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="The model file to write, such as model.pll.")],
    columns: shared.ColumnOptions,
    file: shared.FileOptions,
    training: shared.TrainingOptions,
    network: Annotated[shared.Text, Option(help="Network of the method: mlp, for tables.")] = None,
    held_out: Annotated[float, Option(metavar="SHARE", help="Rows to evaluate on.")] = 0.2,
    coverage: Annotated[float, Option(help="Coverage of the prediction sets.")] = COVERAGE,
) -> None:
    """Train on a table with candidate labels, and write the model to a file.

    A random part of the rows is held out. It is used to evaluate the model, and to calibrate which
    of its predictions are accepted.
    """
    columns.check_form()
    if not 0 <= held_out < 1:
        raise BadParameter("--held-out must be at least 0 and below 1.")
    if not 0 < coverage < 1:
        raise BadParameter("--coverage must be above 0 and below 1.")
    if columns.errors is not None and columns.errors.resolve() == out.resolve():
        raise BadParameter(f"--errors and --out are the same file, {out}.")
    decisions = training.decisions or []
    with refusals():
        model = training.model(network=network)
        refuse_unwritable(out, (path, *decisions), is_model, "a model of robustpll")
    table = shared.read(path, columns, file)
    X = table.features
    with refusals(stopped="No model is written."):
        y, summary = _labels(table, decisions)
        train, test = split_rows(X, y, held_out, training.seed)
        needed = math.ceil(round(coverage / (1 - coverage), 9))  # rows, for prediction sets
        if MIN_HELD_OUT <= len(test) < needed:
            message = f"--coverage {coverage:g} needs {needed:,} held-out rows"
            raise InputError(f"{message}, but there are {len(test):,}. Pass a larger --held-out.")
        summary += [shared.candidate_summary(y), _train(model, X.iloc[train], y[train])]
        model.notes_ = {"reading": asdict(table.reading)}
        model.save(out)  # the training must not be lost if the evaluation fails
    left = f"The model is {out}, but without decisions and prediction sets."
    with refusals(stopped=left, left=left):
        summary += _evaluate(model, X.iloc[test], y[test], coverage, len(y))
        if table.truth is not None:
            summary += _compare_with_truth(model, table, train, test)
        model.save(out)
    typer.echo(f"{path}: {len(table):,} rows, {X.shape[1]:,} features")
    typer.echo("\n".join(summary))
    typer.echo(f"The model is {out}. For predictions: robustpll predict {out} TABLE --out FILE.csv")


def is_model(start: bytes) -> bool:
    """Return whether a file starts like our model files: with our key in safetensors' header."""
    return start[8:].startswith(b'{"__metadata__":{"robustpll')


def _labels(table: "Table", decisions: list[Path]) -> tuple["Candidates", list[str]]:
    """Return the candidates after people's decisions, and a line about these."""
    from robustpll.clean import decisions_file
    from robustpll.clean.run import ADDED
    from robustpll.labels.candidates import Candidates

    added = [name for name in ADDED if name in table.features]
    if added and {*ADDED} <= {*table.features, *table.reading.left_out}:
        message = f"Column {added[0]!r} was added by robustpll clean and reveals the label."
        raise InputError(f"{message} Pass the original table and --decisions, or --ignore it.")
    y = Candidates.of(table.y)
    if not decisions:
        return y, []
    with warnings_said(decisions_file.ConflictWarning):
        key = decisions_file.fingerprint(table, y)
        decided = decisions_file.read_decisions(decisions, table.rows, y.classes, key)
    return decisions_file.with_decisions(y, decided), [f"decided by a person: {len(decided):,}"]


def split_rows(
    features: "pd.DataFrame", y: "Candidates", share: float, seed: int
) -> tuple[Rows, Rows]:
    """Return random training rows and held-out rows, each in their order.

    The training rows include one row of each class, of each word, and with a gap in each column
    that has gaps: a model cannot be evaluated on what it never saw.
    """
    import pandas as pd

    order = np.random.default_rng(seed).permutation(len(y))
    shuffled = features.iloc[order]
    needed = np.zeros(len(y), dtype=bool)  # in the order of `shuffled`
    needed[y.matrix[order].argmax(0)] = True
    for name in shuffled:
        column = shuffled[name]
        if not pd.api.types.is_numeric_dtype(column):
            needed |= ~column.duplicated().to_numpy()
        elif column.hasnans:
            needed[column.isna().to_numpy().argmax()] = True
    count = max(0, min(round(share * len(y)), len(y) - 2))
    test = np.sort(order[~needed][:count])
    return np.setdiff1d(np.arange(len(y)), test), test


def _train(model: Any, X: "pd.DataFrame", y: "Candidates") -> str:
    from rich.console import Console

    from robustpll.engine.history import progress_bars

    start, console = time.monotonic(), Console(stderr=True)
    bars = progress_bars(console) if console.is_terminal else nullcontext()
    with warnings_said(UserWarning), bars:
        model.fit(X, y)
    seconds, ambiguous = time.monotonic() - start, y.sizes > 1
    trained = f"{model.resolved_method().title} learned from {len(y):,} rows in {seconds:,.1f} s"
    if not ambiguous.any():
        return f"{trained}; no row had several candidates"
    resolved = model.opinion_.probability[ambiguous].max(-1) > 0.5
    share = f"{resolved.sum():,} of {ambiguous.sum():,} rows with several candidates"
    return f"{trained}; {share} ({resolved.mean():.1%}) have one above 50% probability"


def _evaluate(
    model: Any, X: "pd.DataFrame", y: "Candidates", coverage: float, total: int
) -> list[str]:
    """Evaluate and calibrate a model on held-out rows, of `total` rows; return the summary."""
    from robustpll.measures.conformal import ConformalSets

    if len(y) == 0:
        return ["no rows are held out: the model is not evaluated, and predict accepts no rows"]
    labelled = bool((y.sizes == 1).all())
    matched = "the label" if labelled else "a candidate (covering rate)"
    summary = [
        f"held out: {len(y):,} rows, drawn at random; in {model.score(X, y):.1%} of them the "
        f"predicted class is {matched}"
    ]
    if len(y) < MIN_HELD_OUT:
        needs = f"too few for prediction sets and decisions, which need {MIN_HELD_OUT} rows"
        return [*summary, f"these are {needs}. Pass more rows, or a larger --held-out"]
    try:
        model.recalibrate(X, y)
        factor = f"recalibrated by the factor {model.recalibration_.factor:.3g}"
    except InputError:  # these rows do not determine a factor
        factor = "not recalibrated"
    model.calibrate_decisions(X, y)
    sets = ConformalSets.of(model, X, y, coverage, hold="weighted")
    model.notes_["sets"] = {"least": sets.least, "coverage": coverage}
    size = sets.predict(X).sum(-1).mean()
    estimate = "" if labelled else ", an estimate: candidates are not true labels"
    summary.append(
        f"{factor}; prediction sets for {coverage:.0%} have {size:.2f} classes on average{estimate}"
    )
    return [*summary, _promise(model, X, total)]


def _promise(model: Any, X: "pd.DataFrame", total: int) -> str:
    """Return how many held-out rows are accepted, or why none is; there are `total` rows in all."""
    trial, needed = model.trial_, model.trial_.fewest(ERROR)
    if needed > len(X):
        share = math.ceil(100 * needed / total) / 100
        remedy = f". Pass --held-out {share:g}" if share <= 0.5 else ""
        return no_promise(trial, ERROR) + remedy
    decision = model.decide(X, error=ERROR)
    basis = "an estimate: candidates are not true labels"
    if trial.confidence is not None:
        if not decision.accepted.any():
            return no_promise(trial, ERROR)
        basis = f"with a confidence of about {trial.confidence:.0%}, if the labels are true"
    accepted = f"{decision.coverage:.1%} of held-out rows are accepted"
    return f"{accepted} if {ERROR:.0%} of these may be wrong, {basis}"


def no_promise(trial: Any, error: float) -> str:
    """Return why no row can be accepted, and the remedies."""
    needed, rows = trial.fewest(error), len(trial.certainty)
    reason = "too many predictions of held-out rows are wrong"
    if needed > rows:
        reason = f"it needs {needed:,} held-out rows with labels, but there are {rows:,}"
    return (
        f"no promise can be made that {100 * error:.3g}% or fewer of accepted rows are wrong: "
        f"{reason}. predict accepts no row. Pass it a larger --error, or fit with more rows"
    )


def _compare_with_truth(model: Any, table: "Table", train: Rows, test: Rows) -> list[str]:
    """Return the accuracy by true labels, which the training did not see."""
    import pandas as pd

    truth = np.asarray(table.truth)
    known = pd.Series(truth).isin(model.classes_).to_numpy()
    right = {"resolved labels of training rows": (model.labels_ == truth[train])[known[train]]}
    if known[test].any():
        predicted = model.predict(table.features.iloc[test]) == truth[test]
        right["predictions of held-out rows"] = predicted[known[test]]
    shares = (f"{name} {rows.mean():.1%}" for name, rows in right.items() if len(rows))
    summary = [f"right by the true labels: {'; '.join(shares)}"]
    if unknown := int((pd.notna(truth) & ~known).sum()):
        summary.append(f"{unknown:,} rows have a true class that is no candidate of any row")
    return summary
