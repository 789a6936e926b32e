"""The command line: the demo, lists, tables, `fit`, `predict`, `export`, `clean`, the benchmark."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from robustpll.cli.bench import app as bench
from robustpll.cli.clean import clean
from robustpll.cli.datasets import app as datasets
from robustpll.cli.messages import errors_as_messages, safe_streams, show_list
from robustpll.cli.models import compare, export, fit, predict
from robustpll.cli.tables import Seed, embed, table

# Set before torch is loaded: threads that spin at barriers are many times slower on busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class App(typer.Typer):
    """The commands; output that cannot be printed is reported."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with safe_streams():
            return super().__call__(*arguments, **options)


app = App(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(bench, name="bench")
app.add_typer(datasets, name="datasets")
for command in (table, fit, compare, predict, export, clean, embed):
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
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all files.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Train four methods on ambiguous digits: a table, a picture, and a page to review digits."""
    with errors_as_messages():
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
    show_list(("name", "method", "family", "uncertainty", "paper"), rows, limit=len(rows))
    typer.echo('\nuncertainty: whether it tells "I do not know" from "either of these"')
