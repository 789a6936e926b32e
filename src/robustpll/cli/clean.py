"""`robustpll clean`: resolve the labels of a table, and find what only a person can settle."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from robustpll.cli.messages import refusals, warnings_said
from robustpll.errors import InputError
from robustpll.tables.columns import Reading

if TYPE_CHECKING:
    from robustpll.clean.run import Cleaned, Cleaning
    from robustpll.methods import Method
    from robustpll.tables.read import Table

IMAGES_ROOT = typer.Option(
    metavar="FOLDER", help="Only pictures below it are shown; by default the table's folder."
)
WRONG = typer.Option(
    metavar="SHARE",
    help="Wrong labels to expect among rows that nobody looks at, if at most 5% of the sets miss "
    "the true class. Where more do, more labels are wrong.",
)


@with_flags
def clean(
    path: Annotated[Path, TABLE],
    *,
    out: Annotated[Path, typer.Option(help="Folder for the labels, findings and the page.")],
    columns: ColumnFlags,
    file: FileFlags,
    bad_rows: BadRowFlags,
    decisions: Annotated[list[Path] | None, DECISIONS] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Paths of pictures, from --images-root or the table."),
    ] = None,
    images_root: Annotated[Path | None, IMAGES_ROOT] = None,
    wrong: Annotated[float, WRONG] = 0.01,
    most: Annotated[int, typer.Option(help="Rows on the page, the most doubtful.")] = 10_000,
    method: Annotated[str, typer.Option(help="One that `robustpll methods` lists.")] = "robust_pll",
    epochs: Annotated[int | None, typer.Option(help="Of methods that have such.")] = None,
    folds: Annotated[int, typer.Option(help="Each is judged by what the others teach.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
) -> None:
    """Resolve conflicting labels, and make a page on which people settle the rest.

    No row is judged by a model that saw its candidates. The folder gets the table with its
    resolved labels; rows, candidates, sets, annotators, twins and pairs of classes that look odd;
    and review.html, whose decisions --decisions takes in.
    """
    columns.refuse_several_forms(least=1)
    if not 0 < wrong < 1:
        raise typer.BadParameter("--wrong must be above 0, and below 1.")
    with refusals():
        from robustpll.clean.run import Cleaning

        cleaning = Cleaning(
            _method(method, epochs),
            folds=folds,
            error=wrong,
            most=most,
            decisions=tuple(decisions or ()),
            images=images,
            images_root=images_root,
            beside=tuple(columns.ignore or ()),
            seed=seed,
            device=device,
            verbose=sys.stderr.isatty(),
        )
        refuse_too_large(path)
        shown = _without_pictures(columns, file, images, path)
    table = read(path, shown, file, bad_rows)
    with refusals(stopped="Files that were written are whole; the others are as they were."):
        cleaned = _cleaned(cleaning, path, table, out)
    for sentence in _summary(cleaned, table, path):
        typer.echo(sentence)


def _cleaned(cleaning: "Cleaning", path: Path, table: "Table", out: Path) -> "Cleaned":
    """What was found; refusals speak of options."""
    from robustpll.clean.decisions_file import ConflictWarning

    try:
        with warnings_said(ConflictWarning):
            return cleaning(path, table, out)
    except InputError as error:
        raise InputError(_as_options(str(error))) from error


def _as_options(sentence: str) -> str:
    for name in ("images_root", "images"):
        sentence = sentence.replace(f"`{name}`", f"--{name.replace('_', '-')}")
    return sentence.replace("as out", "as --out")


def _method(name: str, epochs: int | None) -> "Method":
    from robustpll import PLLClassifier

    model = PLLClassifier(name)
    if epochs is not None:
        model.set_params(method__epochs=epochs)
    return model.resolved_method()


def _without_pictures(
    columns: ColumnFlags, file: FileFlags, images: str | None, path: Path
) -> ColumnFlags:
    """The column of pictures is no feature."""
    if images is None:
        return columns
    from robustpll.tables.columns import no_column
    from robustpll.tables.source import names_in, opened_source

    reading = Reading(encoding=file.encoding, delimiter=file.delimiter, decimal=file.decimal)
    names = names_in(opened_source(path, reading, reading))
    if images not in names:
        raise InputError(f"--images: there is {no_column(images, names)}")
    return replace(columns, ignore=[*(columns.ignore or ()), images])


def _summary(cleaned: "Cleaned", table: "Table", path: Path) -> Iterator[str]:
    from robustpll.clean.page import OUTSIDE

    judged, found, out = cleaned.judged, cleaned.findings, cleaned.page.parent
    y = judged.candidates
    yield (
        f"{path}: {len(y):,} rows, {len(y.classes):,} classes, {y.sizes.mean():.2f} candidates a "
        "row on average"
    )
    if judged.decided.any():
        yield f"decided by a person: {judged.decided.sum():,}"
    sure = len(y) - len(cleaned.review) - int(judged.decided.sum())
    yield f"resolved by the model: {sure:,}; left to a person: {len(cleaned.review):,}"
    yield cleaned.assumed
    if table.truth is not None:
        yield _compared(table.truth, cleaned)
    told = {
        "rows_for_review": "rows that need a person, the most worth asking about first",
        "candidates_that_look_wrong": "candidates that look wrong",
        "sets_that_miss_the_truth": "sets that seem to miss the true class",
        "twins": "pairs of nearly equal rows without a common candidate",
        "annotators": "annotators, by agreement with the model and all others",
        "confused_pairs": "pairs of classes, by how many rows are confused",
    }
    yield f"  {cleaned.table}: the table with resolved labels"
    for name, what in told.items():
        if name in found:
            yield f"  {out / name}.csv: {len(found[name]):,} {what}"
    if cleaned.unseen:
        reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(cleaned.unseen.items()))
        yield (
            f"pictures that the page does not show: {sum(cleaned.unseen.values()):,} of "
            f"{cleaned.shown:,} ({reasons})"
        )
        if OUTSIDE in cleaned.unseen:
            yield "pass --images-root FOLDER to show pictures that are below another folder"
    less = "" if cleaned.shown == len(cleaned.review) else f", the first {cleaned.shown:,} of them"
    yield f"Open {cleaned.page} in a browser to decide the rows that need a person{less}."


def _compared(truth: Any, cleaned: "Cleaned") -> str:
    """How often labels are right where the truth is known, with and without those in doubt."""
    import numpy as np
    import pandas as pd

    known = pd.notna(truth)
    right = cleaned.judged.labels == truth
    asked = np.zeros(len(right), dtype=bool)
    asked[cleaned.review.index] = True
    sure, doubted = right[known & ~asked], right[known & asked]
    parts = [
        f"{own.mean():.1%} of {len(own):,} {words}"
        for own, words in ((sure, "resolved ones"), (doubted, "that need a person"))
        if len(own)
    ]
    return f"by the true labels these are right: {', '.join(parts)}"
