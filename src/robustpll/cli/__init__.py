"""The command line: tours, lists, tables, `fit`, `predict`, `export`, `clean` and the benchmark."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from robustpll.cli.bench import app as bench
from robustpll.cli.clean import clean
from robustpll.cli.datasets import app as datasets
from robustpll.cli.export import export
from robustpll.cli.fit import fit
from robustpll.cli.messages import refusals
from robustpll.cli.predict import predict
from robustpll.cli.streams import streams
from robustpll.cli.table import table

# Before torch is loaded: threads that spin at barriers make it many times slower on busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class App(typer.Typer):
    """The commands, with output that fails in a sentence."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with streams():
            return super().__call__(*arguments, **options)


app = App(
    help="Learn a classifier from sets of candidate labels, and know how sure it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(datasets, name="datasets")
app.command()(table)
app.command()(fit)
app.command()(predict)
app.command()(export)
app.command()(clean)


def _version(asked: bool) -> None:
    if asked:
        from robustpll import __version__

        typer.echo(f"robustpll {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Learn a classifier from sets of candidate labels, and know how sure it is."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
) -> None:
    """A tour in a minute: digits with ambiguous labels, three methods, a table and a picture."""
    with refusals():
        from robustpll.demo import run_demo

        run_demo(out, seed)


@app.command()
def methods() -> None:
    """List the methods, with their papers."""
    from rich.console import Console
    from rich.table import Table

    from robustpll.methods import METHODS

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("name", "method", "family", "uncertainty"):
        table.add_column(heading, no_wrap=True)
    table.add_column("paper")
    for name, method in METHODS.items():
        uncertain = "yes" if method.uncertain else "no"
        table.add_row(name, method.title, method.family, uncertain, method.reference())
    console = Console(highlight=False)
    console.print(table)
    console.print('\nuncertainty: whether it tells "I do not know" from "either of these"')
