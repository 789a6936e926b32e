"""`robustpll fit`: learn from a table, say how good the model is, and write it to a file."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from robustpll.cli.flags import (
    DECISIONS,
    TABLE,
    BadRowFlags,
    ColumnFlags,
    FileFlags,
    read,
    with_flags,
)
from robustpll.cli.memory import refuse_too_large
from robustpll.cli.messages import nearest, refusals, refuse_unwritable, warnings_said
from robustpll.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.tables.read import Table

FEWEST = 30  # held-out rows by which decisions and prediction sets can be judged
MOST_HELD_OUT = 0.5  # to advise: with more, too little is learned from
ERROR, COVERAGE = 0.05, 0.9  # of decisions and prediction sets, if nobody says other


@with_flags
def fit(
    path: Annotated[Path, TABLE],
    *,
    out: Annotated[Path, typer.Option(help="Where the model goes, such as model.pll.")],
    columns: ColumnFlags,
    file: FileFlags,
    bad_rows: BadRowFlags,
    decisions: Annotated[list[Path] | None, DECISIONS] = None,
    method: Annotated[str, typer.Option(help="One that `robustpll methods` lists.")] = "robust_pll",
    network: Annotated[
        str | None, typer.Option(help="Of methods that train one: mlp, for tables.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of methods that have such.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    held_out: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the rows: to judge by, not to learn from.")
    ] = 0.2,
    coverage: Annotated[
        float, typer.Option(help="How often prediction sets should hold the true class.")
    ] = COVERAGE,
) -> None:
    """Learn from a table with candidate labels, and write the model to a file.

    Some rows are held out, drawn at random. The model never learns from them: they tell how good
    it is, and how sure it has to be for its predictions to be accepted.
    """
    columns.refuse_several_forms(least=1)
    if not 0 <= held_out < 1:
        raise typer.BadParameter("--held-out must be at least 0, and below 1.")
    if not 0 < coverage < 1:
        raise typer.BadParameter("--coverage must be above 0, and below 1.")
    if bad_rows.errors is not None and bad_rows.errors.resolve() == out.resolve():
        raise typer.BadParameter(f"--errors and --out are the same file, {out}.")
    with refusals():
        model = _model(method, {"network": network, "epochs": epochs}, seed, device)
        refuse_unwritable(out, (path, *(decisions or ())), is_model, "a model of robustpll")
        refuse_too_large(path)
    table = read(path, columns, file, bad_rows)
    with refusals(stopped="No model is written."):
        y, decided = _decided(table, decisions or [])
        learned, held = parted(table.features, y, held_out, seed)
        _refuse_rare(coverage, len(held))
        summary = [*decided, *_learned(model, table, y, learned)]
        model.save(out)  # whatever comes: the training was the work
    left = f"The model is {out}, but without decisions and prediction sets."
    with refusals(stopped=left, left=left):
        summary += _judged(model, table, y, held, coverage)
        if table.truth is not None:
            summary += _scored(model, table, learned, held)
        model.save(out)
    typer.echo(f"{path}: {len(table):,} rows, {table.features.shape[1]:,} features")
    for sentence in summary:
        typer.echo(sentence)
    typer.echo(f"The model is {out}. For predictions: robustpll predict {out} TABLE --out FILE.csv")


def is_model(start: bytes) -> bool:
    """Whether a file begins as model files do: the first key in safetensors' header is ours."""
    return start[8:].startswith(b'{"__metadata__":{"robustpll')


def _model(method: str, fields: dict[str, Any], seed: int, device: str) -> Any:
    """A classifier that is not fitted; what cannot be is told before a table is read."""
    from robustpll import PLLClassifier
    from robustpll.engine.device import chosen_device
    from robustpll.methods import METHODS

    if method not in METHODS:
        msg = f"There is no method {method!r}.{nearest(method, METHODS)}"
        raise InputError(f"{msg} `robustpll methods` lists them.")
    chosen_device(device)
    model = PLLClassifier(method, random_state=seed, device=device)
    asked = {f"method__{name}": value for name, value in fields.items() if value is not None}
    return model.set_params(**asked)


def _decided(table: "Table", paths: list[Path]) -> tuple["Candidates", list[str]]:
    """The candidates, of rows that a person decided a single one; and how many these are."""
    from robustpll.clean.decisions_file import (
        ConflictWarning,
        fingerprint,
        read_decisions,
        with_decisions,
    )
    from robustpll.clean.run import ADDED
    from robustpll.labels.candidates import Candidates

    added = [name for name in ADDED if name in table.features]
    if added and {*ADDED} <= {*table.features, *table.reading.left_out}:
        raise InputError(
            f"Column {added[0]!r} was added by robustpll clean and tells what it holds of the "
            "label: pass the table that was cleaned, and --decisions, or name it in --ignore."
        )
    y = Candidates.of(table.y)
    if not paths:
        return y, []
    with warnings_said(ConflictWarning):
        found = read_decisions(paths, table.rows, y.classes, fingerprint(table, y))
    return with_decisions(y, found), [f"decided by a person: {len(found):,}"]


def _learned(
    model: Any, table: "Table", y: "Candidates", learned: NDArray[np.int64]
) -> Iterator[str]:
    """Fit the model, and say how it went."""
    yield (
        f"{len(y.classes):,} classes; {y.sizes.mean():.2f} candidates a row on average; "
        f"{(y.sizes == 1).mean():.1%} of the rows have one candidate"
    )
    began = time.monotonic()
    with warnings_said(UserWarning), _bars():
        model.fit(table.features.iloc[learned], y[learned])
    title = model.resolved_method().title
    yield (
        f"{title} learned from {len(learned):,} rows in {time.monotonic() - began:,.1f} s"
        + _resolved(model, y[learned])
    )
    model.notes_ = {"reading": asdict(table.reading)}


def parted(
    features: "pd.DataFrame", y: "Candidates", share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from and rows to hold out, drawn at random, in their order.

    Of each word, of the gaps of each column and of each class one row is learned from: a model
    cannot be judged by what it never saw.
    """
    import pandas as pd

    order = np.random.default_rng(seed).permutation(len(y))
    drawn = features.iloc[order]
    first = np.zeros(len(y), dtype=bool)  # along the drawn rows
    first[y.matrix[order].argmax(0)] = True
    for name in drawn:
        column = drawn[name]
        if not pd.api.types.is_numeric_dtype(column):
            first |= ~column.duplicated().to_numpy()
        elif column.hasnans:
            first[column.isna().to_numpy().argmax()] = True
    count = min(round(share * len(y)), len(y) - 2)
    held = order[~first][: max(count, 0)]
    return np.setdiff1d(np.arange(len(y)), held), np.sort(held)


def _bars() -> Any:
    """Progress on a terminal, beside what is printed."""
    from rich.console import Console

    from robustpll.engine.history import progress_bars

    console = Console(stderr=True)
    return progress_bars(console) if console.is_terminal else nullcontext()


def _resolved(model: Any, y: "Candidates") -> str:
    """Of the rows with several candidates: how many have one that is likelier than not."""
    several = y.sizes > 1
    if not several.any():
        return "; no row had several candidates"
    sure = model.opinion_.probability[several].max(-1) > 0.5
    return (
        f"; of the {several.sum():,} with several candidates, {sure.sum():,} are resolved "
        f"({sure.mean():.1%}): one candidate is likelier than all others together"
    )


def _judged(
    model: Any, table: "Table", y: "Candidates", held: NDArray[np.int64], coverage: float
) -> Iterator[str]:
    """What the held-out rows tell: the covering rate; thresholds of decisions and sets."""
    from robustpll.measures.conformal import ConformalSets

    if len(held) == 0:
        yield (
            "no rows are held out, as --held-out is 0 or each row has a class, word or gap that no "
            "other has: nothing tells how good the model is, and predict marks all rows for review"
        )
        return
    X, own = table.features.iloc[held], y[held]
    by_labels = bool((own.sizes == 1).all())
    covered = "the label" if by_labels else "a candidate (covering rate)"
    yield (
        f"held out: {len(held):,} rows, drawn at random; in {model.score(X, own):.1%} of them the "
        f"predicted class is {covered}"
    )
    if len(held) < FEWEST:
        yield (
            f"that is too few for prediction sets and decisions, which take {FEWEST} held-out rows:"
            " predict writes no sets, and marks all rows for review. Pass more rows, or a larger "
            "--held-out"
        )
        return
    try:
        model.recalibrate(X, own)
    except InputError:  # these rows do not say how sure to be
        factor = "not recalibrated"
    else:
        factor = f"recalibrated by the factor {model.recalibration_.factor:.3g}"
    model.calibrate_decisions(X, own)
    sets = ConformalSets.of(model, X, own, coverage, hold="weighted")
    model.notes_["sets"] = {"least": sets.least, "coverage": coverage}
    yield (
        f"{factor}; prediction sets for {coverage:.0%} have {sets.predict(X).sum(-1).mean():.2f} "
        "classes on average" + ("" if by_labels else ", an estimate: candidates are no true labels")
    )
    yield _promise(model, X, len(table) - len(held))


def _promise(model: Any, X: Any, learned: int) -> str:
    """How many rows decisions accept, or why they accept none; X are the held-out rows."""
    trial, held = model.trial_, len(X)
    none = f"no promise can be made that {ERROR:.0%} or fewer of accepted rows are wrong:"
    if not trial.can_promise(ERROR):
        fewest = trial.fewest(ERROR)
        share = math.ceil(100 * fewest / (learned + held)) / 100
        more = f"--held-out {share:g}, more rows" if share <= MOST_HELD_OUT else "more rows"
        return (
            f"{none} it takes {fewest:,} held-out rows with labels, and these are {held:,}. So "
            f"predict marks all rows for review. Pass {more}, or a larger --error to predict"
        )
    decision = model.decide(X, error=ERROR)
    if trial.confidence is not None and not decision.accepted.any():
        return (
            f"{none} too many predictions of held-out rows are wrong. So predict marks all rows "
            "for review, unless it is passed a larger --error"
        )
    sure = (
        "an estimate: candidates are no true labels"
        if trial.confidence is None
        else f"with a confidence of about {trial.confidence:.0%}, if the labels are true"
    )
    return (
        f"of such rows {decision.coverage:.1%} are accepted if {ERROR:.0%} of these may be wrong, "
        f"{sure}"
    )


def _refuse_rare(coverage: float, held: int) -> None:
    """Told before the training: sets that nearly always hold the true class take more rows."""
    fewest = math.ceil(round(coverage / (1 - coverage), 9))
    if FEWEST <= held < fewest:
        raise InputError(
            f"--coverage {coverage:g} takes {fewest:,} held-out rows, and these are {held:,}. Pass "
            "a larger --held-out, or a smaller --coverage."
        )


def _scored(
    model: Any, table: "Table", learned: NDArray[np.int64], held: NDArray[np.int64]
) -> Iterator[str]:
    """Against true labels, which nothing was learned from."""
    import pandas as pd

    assert table.truth is not None
    known = pd.Series(table.truth).isin(model.classes_).to_numpy()
    unknown = int((pd.notna(table.truth) & ~known).sum())
    resolved = model.labels_ == table.truth[learned]
    right = {"resolved labels of learned rows": resolved[known[learned]]}
    if known[held].any():
        predicted = model.predict(table.features.iloc[held]) == table.truth[held]
        right["predictions of held-out rows"] = predicted[known[held]]
    shares = (f"{words} {rows.mean():.1%}" for words, rows in right.items() if len(rows))
    yield f"right by the true labels: {'; '.join(shares)}"
    if unknown:
        yield (
            f"{unknown:,} rows have a true class that is no candidate of any row: the shares above "
            "leave them out"
        )
