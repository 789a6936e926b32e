"""`fit --stream` and `predict --stream`: Parquet and Arrow files that exceed the memory."""

import time
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import BadParameter, Option

from robustpll.cli import tables as shared
from robustpll.cli.messages import errors_as_messages, refuse_unwritable, say

Stream = Annotated[
    bool, Option("--stream", help="Read Parquet or Arrow in pieces, so that it may be of any size.")
]
Scratch = Annotated[Path | None, Option(help="Folder of the scratch files of --stream.")]

MOST_HELD_OUT = 20_000  # rows, which are in memory
ROW_VISITS = 10**8  # of the default number of epochs, which is 2 to 200
USED = ("candidates", "separator", "votes", "indicators", "truth", "ignore", "id")


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
    *,
    network: str | None,
    held_out: float,
    scratch: Path | None,
    start: bytes,
) -> tuple[Any, Any, Any, Any]:
    """Fit and save a model; return it with held-out rows, their candidates and true labels."""
    refuse_unused(columns, used=USED)
    used = ("method", "epochs", "device", "seed")
    refuse_unused(training, used=used)
    with errors_as_messages(stopped="No model is written; scratch files are removed."):
        from rich.console import Console

        from robustpll import ParquetRows
        from robustpll.engine.history import progress_bars
        from robustpll.tables.source import Reading

        form: Any = {name: getattr(columns, name) for name in USED[:4]}
        rows = ParquetRows(path, **form, scratch=scratch)
        others = {*columns.ignored(), *([columns.truth] if columns.truth else ())}
        names = tuple(name for name in rows.names if name not in others)
        rows = ParquetRows(path, **form, features=names, scratch=scratch)
        method = "robust_pll" if training.method == "auto" else training.method
        settings = asdict(training) | {"method": method, "decisions": None}
        if training.epochs is None:
            settings["epochs"] = min(200, max(2, ROW_VISITS // rows.count()))
        model = shared.TrainingOptions(**settings).model(network)
        refuse_unwritable(out, (path,), start, "a model of robustpll")
        share = min(held_out, MOST_HELD_OUT / rows.count())
        train, test = rows.split(share, training.seed) if share else (rows, None)
        begun, console = time.monotonic(), Console(stderr=True)
        with progress_bars(console) if console.is_terminal else nullcontext():
            model.fit(train)
        model.notes_ = {"reading": asdict(Reading())}
        model.save(out)
        held_out_rows: Any = (None, [])
        truth = None
        if test is not None:
            held_out_rows = test.read(model.classes_)
            if columns.truth is not None:
                cells = [cells[columns.truth] for cells, _ in test.batches([columns.truth])]
                truth = np.concatenate([part.to_pandas().to_numpy(object) for part in cells])
    seconds = time.monotonic() - begun
    title = f"{model.resolved_method().title}, {len(model.history_['loss'])} epochs,"
    typer.echo(f"{path}: {rows.count():,} rows, {len(names):,} features")
    typer.echo(f"{title} learned from {len(model.labels_):,} rows in {seconds:,.1f} s.")
    return model, *held_out_rows, truth


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
