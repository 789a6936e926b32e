"""The command line: tours, lists, tables, `fit`, `predict`, `export`, `clean` and the benchmark."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from robustpll.cli.bench import app as bench
from robustpll.cli.clean import clean
from robustpll.cli.datasets import app as datasets
from robustpll.cli.fit import fit
from robustpll.cli.messages import refusals, refuse_unwritable, safe_streams
from robustpll.cli.options import ModelPath, Seed
from robustpll.cli.predict import predict
from robustpll.cli.table import show_list, table

# Set before torch is loaded: threads that spin at barriers are many times slower on busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class App(typer.Typer):
    """The commands, with messages for output that cannot be printed."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with safe_streams():
            return super().__call__(*arguments, **options)


app = App(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(bench, name="bench")
app.add_typer(datasets, name="datasets")
for command in (table, fit, predict, clean):
    app.command()(command)


def _print_version(requested: bool) -> None:
    if requested:
        from robustpll import __version__

        typer.echo(f"robustpll {__version__}")
        raise typer.Exit


Version = typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")


@app.callback()
def main(version: Annotated[bool, Version] = False) -> None:
    """Train classifiers on sets of candidate labels, and estimate how certain they are."""


@app.command()
def export(
    model: ModelPath, *, out: Annotated[Path, typer.Option(help="The ONNX file to write.")]
) -> None:
    """Write a neural model as ONNX: scaling, networks, probabilities and uncertainty."""
    if out.suffix.lower() != ".onnx":
        raise typer.BadParameter(f"--out writes ONNX: {out} must end in .onnx.")
    with refusals():
        from robustpll import load
        from robustpll.estimator.onnx import INPUT, KEY, OUTPUTS

        # ONNX files start with their version, then the length and name of the exporting program
        start = re.compile(rb"\x08.\x12" + bytes([len(KEY)]) + KEY.encode(), re.DOTALL)
        refuse_unwritable(out, (model,), lambda head: bool(start.match(head)), "a file of export")
        classifier = load(model, device="cpu")
        classifier.export_onnx(out)
        shape = " x ".join(map(str, classifier.features_.shape))
    typer.echo(
        f"{out} takes rows of {shape} numbers as {INPUT!r} and returns {', '.join(OUTPUTS)}."
    )
    typer.echo("Its metadata names the classes and the features.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Train three methods on digits with ambiguous labels; print a table and draw a picture."""
    with refusals():
        from robustpll.demo import run_demo

        run_demo(out, seed)


@app.command()
def methods() -> None:
    """List the methods and their papers."""
    from robustpll.methods import METHODS

    rows = [
        (name, method.title, method.family, "yes" if method.uncertain else "no", method.reference())
        for name, method in METHODS.items()
    ]
    show_list(("name", "method", "family", "uncertainty", "paper"), rows, len(rows))
    typer.echo('\nuncertainty: whether it tells "I do not know" from "either of these"')
