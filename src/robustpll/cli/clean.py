"""`robustpll clean`: resolves the labels of a table, and finds rows that a person must decide."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from typer import BadParameter, Option

from robustpll.cli import tables as shared
from robustpll.cli.messages import as_options, errors_as_messages
from robustpll.errors import InputError, counted

if TYPE_CHECKING:
    from robustpll.clean.judge import Judgement
    from robustpll.clean.run import Cleaned
    from robustpll.tables.read import Table

IMAGES = "Paths of pictures to show; by default those of --image-input."
LAX = 0.05  # of wrong labels: the summary says how many questions it would save
WRONG = "Share of wrong labels to expect among those that no person decides."


@shared.with_options
def clean(
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="Folder for the labels, findings and the page.")],
    columns: shared.ColumnOptions,
    file: shared.FileOptions,
    training: shared.TrainingOptions,
    images: Annotated[shared.Text, shared.column_option(help=IMAGES)] = None,
    wrong: Annotated[float, shared.share_option(help=WRONG)] = 0.01,
    most: Annotated[int, Option(min=1, help="Most rows on the page.")] = 10_000,
    folds: Annotated[int, Option(help="Number of cross-validation folds.")] = 5,
    no_baselines: shared.NoBaselines = False,
) -> None:
    """Resolve conflicting labels, and write a page on which people decide the rest.

    Each row is judged by a model that did not see its candidates. The folder gets the table with
    resolved labels, lists of what looks wrong, and review.html; --decisions reads what people
    decided there.
    """
    columns.check_form(path)
    if not 0 < wrong < 1:
        raise BadParameter("--wrong must be above 0 and below 1.")
    with errors_as_messages():
        method = training.method_in_folds()
        images, root = images or columns.image_input, columns.images_root
        if root and not (images and root.is_dir()):
            raise InputError("--images-root must be the folder of the pictures of --images.")
    also_read = replace(columns, ignore=[*columns.ignored(), *([images] if images else ())])
    shared.check_columns(path, file, images=images)
    table = shared.read(path, also_read, file, cells=True)
    with errors_as_messages("Files that were written are complete; the others did not change."):
        from robustpll.clean.run import PageColumns, clean_table

        item = [columns.item] if columns.item else ()
        notes = [*item, *columns.ignored(), *also_read.unused(table)]
        cleaned = clean_table(
            path,
            table,
            out,
            method,
            error=wrong,
            most=most,
            decisions=training.decisions or (),
            columns=PageColumns(columns.row_id, notes, images, root, columns.truth),
            folds=folds,
            seed=training.seed,
            device=training.device,
            cluster=training.cluster,
            verbose=sys.stderr.isatty(),
        )
    typer.echo("\n".join(_summary(cleaned, table, path, out, wrong)))
    if not no_baselines:
        with errors_as_messages("All files are written; baselines are not compared."):
            rows = cleaned.decided.table
            typer.echo(_compared(cleaned.judged, rows, method.title, training.seed))


def _compared(judged: "Judgement", table: "Table", title: str, seed: int) -> str:
    """Compare the out-of-fold predictions of the model with those of baselines."""
    from robustpll.estimator.features import Features
    from robustpll.evaluate.compare import FEWEST_ROWS, Predictions, baselines, comparison_of

    if len(table) < FEWEST_ROWS:
        return f"not compared with baselines, because there are fewer than {FEWEST_ROWS} rows"
    _, rows = Features.fit_rows(table.X, "cpu", text=table.reading.text)
    ours = Predictions(title, np.asarray(judged.opinion.predicted()))
    others = baselines(rows, judged.candidates, seed)
    return as_options(str(comparison_of(judged.candidates, ours, others, table.truth)))


def _about_annotators(judged: "Judgement") -> Iterator[str]:
    from robustpll.labels.votes import votes_for
    from robustpll.measures.agreement import fleiss_kappa, krippendorff_alpha

    if judged.crowd is not None and judged.answers is not None:
        votes = votes_for(judged.answers, len(judged.candidates.classes))
        right = judged.crowd.crowd.reliability[(judged.answers >= 0).any(0)]
        if len(right) == 1:  # nobody to agree with
            yield f"1 annotator, right in {right[0]:.0%} of the answers (estimated)"
            return
        measures = (fleiss_kappa(votes), krippendorff_alpha(votes))
        kappa, alpha = ("not defined" if np.isnan(m) else f"{m:.2f}" for m in measures)
        yield (
            f"{len(right):,} annotators, right in {right.min():.0%} to {right.max():.0%} of their "
            f"answers (estimated); agreement: Fleiss' kappa {kappa}, Krippendorff's alpha {alpha}"
        )


def _summary(
    cleaned: "Cleaned", table: "Table", path: Path, out: Path, wrong: float
) -> Iterator[str]:
    import pandas as pd

    from robustpll.clean.review import below_threshold
    from robustpll.clean.run import PAGE, REVIEW

    y, review, rows = cleaned.judged.candidates, cleaned.findings[REVIEW], cleaned.decided.table
    by_person, unknown = cleaned.judged.decided, cleaned.decided.cannot_tell
    is_open = np.isin(np.arange(len(y)), review.index)
    by_model = ~is_open & ~by_person & ~unknown
    yield f"{path}: {len(table):,} rows, {shared.summary_of(y)}"
    resolved = f"{by_model.sum():,}; left to a person: {len(review):,}"
    yield f"decided by a person: {by_person.sum():,}; resolved by the model: {resolved}"
    doubtful = is_open & below_threshold(cleaned.judged.confidence, LAX)
    if wrong < LAX and doubtful.sum() < len(review):
        fewer = f"--wrong {LAX} would leave {doubtful.sum():,} of {counted(len(review), 'row')}"
        yield f"{fewer} to a person: then up to {LAX:.0%} of the other labels may be wrong"
    yield from cleaned.decided.messages()
    yield cleaned.assumption
    yield from _about_annotators(cleaned.judged)
    if rows.truth is not None:
        known = pd.notna(rows.truth)
        resolved_rows = known & (by_model | by_person)
        groups = {"resolved ones": resolved_rows, "that need a person": known & is_open}
        yield shared.right_shares(cleaned.judged.labels == rows.truth, groups)
    yield f"  {cleaned.table}: the table with resolved labels"
    for name, frame in cleaned.findings.items():
        words = name.replace("_", " ").replace("that miss", "that may miss")
        yield f"  {out / name}.csv: {words} ({len(frame):,})"
    if cleaned.not_shown:
        reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(cleaned.not_shown.items()))
        yield f"pictures that the page does not show: {reasons}"
    if len(review):
        yield f"Open {out / PAGE} in a browser to decide the rows that need a person."
