"""`robustpll embed`: adds features of pictures or texts to a table."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import BadParameter, Option

from robustpll.cli import tables as shared
from robustpll.cli.messages import as_options, errors_as_messages, refuse_unwritable, say

ENCODER = "An ONNX file, or a name of timm (also NAME:FILE.safetensors) or sentence-transformers."
NORMALIZE = "Colours of an encoder: imagenet, half (from -1 to 1) or none (from 0 to 1)."


@shared.with_options
def embed(
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="The table to write: .parquet or .csv.")],
    encoder: Annotated[str, Option(metavar="ENCODER", help=ENCODER)],
    text: Annotated[shared.Text, shared.column_option(help="Column of texts.")] = None,
    image_input: Annotated[
        shared.Text, shared.column_option(help="Column with paths of pictures.")
    ] = None,
    images_root: Annotated[Path | None, Option(help="Folder of pictures, or the table's.")] = None,
    normalize: Annotated[shared.Text, Option(help=NORMALIZE)] = None,
    skip_bad_rows: shared.SkipBadRows = False,
    file: shared.FileOptions,
) -> None:
    """Compute features of pictures or texts by a pretrained network, once, and write a table.

    The columns e0, e1, ... are appended to those of the table. A command that was stopped goes on
    where it ended, if it is run again with the same options.
    """
    column = text if image_input is None else image_input
    if column is None or (text is not None and image_input is not None):
        raise BadParameter("pass one of --text and --image-input.")
    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise BadParameter(f"--out writes CSV or Parquet: {out} must end in .csv or .parquet.")
    with errors_as_messages(stopped="Run the same command again to go on."):
        from rich.console import Console
        from rich.progress import Progress

        from robustpll.tables import encoders
        from robustpll.tables.source import Reading, several

        shared.check_columns(path, file, text=text, image_input=image_input)
        refuse_unwritable(out, (path,), rb"(?!)", "a table of embed")  # it may be any table
        network = encoders.Encoder.of(
            encoder, pictures=image_input is not None, normalize=normalize
        )
        reading = Reading(**asdict(file) | {"missing": several(file.missing)})
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rows", total=None)
            rows, count, bad = encoders.embed(
                path,
                out,
                column,
                network,
                about=f"{encoder} {normalize} {_stamp(encoder)}",
                reading=reading,
                root=images_root,
                skip_bad_rows=skip_bad_rows,
                progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
    for fault in bad:
        say(f"Left out: {as_options(fault)}")
    typer.echo(
        f"{out} has {rows:,} rows and {count:,} features of column {column!r}, e0 to e{count - 1}."
    )
    typer.echo(f"To learn from them: robustpll fit {out} --ignore '{column}' ...")


def _stamp(encoder: str) -> str:
    """The size and time of the encoder's file, if it is one."""
    path = Path(encoder.rpartition(":")[2])
    return f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else ""
