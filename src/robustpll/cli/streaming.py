"""`fit --stream` and `predict --stream`: Parquet and Arrow files that exceed the memory."""

from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import BadParameter, Option

from robustpll.cli import tables as shared
from robustpll.cli.messages import errors_as_messages, refuse_unwritable, say

STREAM = "Read Parquet or Arrow in pieces: any size."
MOST_HELD_OUT = 20_000  # rows, which are in memory
ROW_VISITS = 10**8  # by which the number of epochs is chosen, from 2 to 200
FORMS = ("candidates", "separator", "votes", "indicators")
OTHERS = ("truth", "ignore", "id")


@dataclass(frozen=True)
class StreamOptions:
    """Whether rows are streamed, and where."""

    stream: Annotated[bool, Option("--stream", help=STREAM)] = False
    scratch: Annotated[Path | None, Option(help="Folder of scratch files of --stream.")] = None


def refuse_unused(*groups: Any, used: tuple[str, ...] = ()) -> None:
    """Raise BadParameter if an option is passed that streaming does not use."""
    for group in groups:
        for option in fields(group):
            if option.name not in used and getattr(group, option.name) != option.default:
                raise BadParameter(f"--stream does not take --{option.name.replace('_', '-')}.")


def stream_fit(
    path: Path,
    out: Path,
    columns: shared.ColumnOptions,
    training: shared.TrainingOptions,
    streaming: StreamOptions,
    *,
    network: str | None,
    held_out: float,
    start: bytes,
) -> tuple[Any, Any, Any]:
    """Fit and save a model; return it with held-out rows (X, y), and their true labels."""
    refuse_unused(columns, training, used=(*FORMS, *OTHERS, "method", "epochs", "device", "seed"))
    with errors_as_messages(stopped="No model is written; scratch files are removed."):
        from robustpll import ParquetRows

        form: Any = {name: getattr(columns, name) for name in FORMS}
        rows = ParquetRows(path, **form, scratch=streaming.scratch)
        unused = {*columns.ignored(), columns.truth}
        rows = replace(rows, features=[name for name in rows.names if name not in unused])
        if training.method == "auto":
            training = replace(training, method="robust_pll")
        if training.epochs is None:
            training = replace(training, epochs=min(200, max(2, ROW_VISITS // rows.count())))
        model = training.model(network)
        refuse_unwritable(out, (path,), start, "a model of robustpll")
        share = min(held_out, MOST_HELD_OUT / max(1, rows.count()))
        train, test = rows.split(share, training.seed) if share else (rows, None)
        seconds = shared.fit_and_save(model, out, partial(model.fit, train))
        X_and_y: Any = (None, []) if test is None else test.read(model.classes_)
        truth = None
        if test is not None and columns.truth is not None:
            cells = [batch[columns.truth] for batch, _ in test.batches([columns.truth])]
            truth = np.concatenate([part.to_pandas().to_numpy(object) for part in cells])
    title = f"{model.resolved_method().title}, {len(model.history_['loss'])} epochs,"
    counts = f"{len(model.labels_):,} rows of {len(rows.names):,} features"
    typer.echo(f"{title} learned from {counts} in {seconds:,.1f} s. The model is {out}.")
    return model, X_and_y, truth


def stream_predict(
    model: Any, path: Path, out: Path, *, keep: list[str], error: float, inputs: tuple[Path, ...]
) -> None:
    """Predict the rows of a Parquet or Arrow file or folder, and write Parquet."""
    from robustpll import ParquetRows
    from robustpll.tables.stream import is_file_of_predictions

    if out.suffix.lower() != ".parquet":
        raise BadParameter(f"--stream writes Parquet: {out} must end in .parquet.")
    is_ours = out.is_file() and is_file_of_predictions(out)
    refuse_unwritable(out, inputs, rb"PAR1" if is_ours else rb"(?!)", "a file of predict --stream")
    count = ParquetRows(path).write_predictions(model, out, error=error, keep=keep)
    if model.trial_ is None:
        say("The model is not calibrated: no row is accepted.")
    typer.echo(f"{path}: {count:,} rows predicted. The predictions are in {out}.")
