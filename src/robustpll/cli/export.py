"""`robustpll export`: a model as an ONNX file, for other programs."""

import re
from pathlib import Path
from typing import Annotated

import typer

from robustpll.cli.messages import refusals, refuse_unwritable


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `fit` wrote.")],
    *,
    out: Annotated[Path, typer.Option(help="The ONNX file to write.")],
) -> None:
    """Write a model of networks as ONNX: scaling, networks, probabilities and uncertainty."""
    if out.suffix.lower() != ".onnx":
        raise typer.BadParameter(f"--out writes ONNX: {out} must end in .onnx.")
    with refusals():
        from robustpll import load
        from robustpll.estimator.onnx import INPUT, KEY, OUTPUTS

        # an ONNX file begins with its version and the length and name of the program that wrote it
        begins = re.compile(rb"\x08.\x12" + bytes([len(KEY)]) + KEY.encode(), re.DOTALL).match
        refuse_unwritable(out, (model,), lambda start: bool(begins(start)), "what export wrote")
        classifier = load(model, device="cpu")
        classifier.export_onnx(out)
        shape = " x ".join(map(str, classifier.features_.shape))
    typer.echo(
        f"{out} takes rows of {shape} numbers as {INPUT!r}, and gives {', '.join(OUTPUTS)}. Its "
        "metadata names the classes and the features."
    )
