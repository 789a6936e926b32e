"""`robustpll datasets` lists the datasets; `get` downloads them, `add` takes a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from robustpll.cli.messages import errors_as_messages, say, show_list
from robustpll.datasets.catalog import CATALOG, Entry, Report, entry_of, fetch, find
from robustpll.errors import RobustPLLError

app = typer.Typer(help="List, download and add datasets.", invoke_without_command=True)
ALL = "Datasets to download; 'all' for all that can be downloaded."


@app.callback()
def datasets(context: typer.Context) -> None:
    """List the datasets, where each is, and how to get those that are missing."""
    if context.invoked_subcommand is not None:
        return
    heading = ("name", "title", "rows", "features", "classes", "size", "licence")
    rows = []
    for entry in CATALOG.values():
        sizes = (f"{size:,}" for size in (entry.rows, entry.features, entry.classes))
        average = f"{entry.candidates:.2f}" if entry.candidates else "-"
        rows.append((entry.name, entry.title, *sizes, average, entry.licence))
    show_list(heading, rows, limit=len(rows))
    typer.echo("size: candidates per row on average; - if noise makes them\n")
    with errors_as_messages():
        for entry in CATALOG.values():  # below the table, because a path must not be folded
            typer.echo(f"{entry.name:16}{_place(entry)}")
    typer.echo("\nWhat you download by hand: robustpll datasets add NAME ARCHIVE")


@app.command()
def get(names: Annotated[list[str], typer.Argument(metavar="NAME...", help=ALL)]) -> None:
    """Download datasets and check them; files that are here and correct are kept."""
    with errors_as_messages():
        if "all" in names:
            names = [name for name, entry in CATALOG.items() if entry.is_downloadable]
        entries = [entry_of(name) for name in names]
    failed = False
    with errors_as_messages("Complete files are kept. Run the command again to get the others."):
        for entry in entries:
            try:
                with _progress_bars() as report:
                    fetch(entry, say, report)
                typer.echo(f"{entry.name:16}{_place(entry)}")
            except RobustPLLError as error:  # go on with the others
                say(str(error))
                failed = True
    if failed:
        raise typer.Exit(1)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="One of the real-world datasets.")],
    file: Annotated[Path, typer.Argument(help="Its .mat file, or a .zip or .tar with that file.")],
) -> None:
    """Check a real-world dataset that you downloaded by hand, and copy it to its place."""
    from robustpll.datasets.mat import add as add_file

    with errors_as_messages():
        path = add_file(entry_of(name), file, say)
    typer.echo(f"{name:16}{path}")


@contextmanager
def _progress_bars() -> Iterator[Report]:
    """Yield a function that shows a progress bar per file on a terminal."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    columns = ("{task.description}", bars.BarColumn(), bars.DownloadColumn())
    tasks: dict[str, bars.TaskID] = {}
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as display:

        def report(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = display.add_task(file, total=total)
            display.update(tasks[file], completed=done, total=total)

        yield report


def _place(entry: Entry) -> str:
    """Return where a dataset is, or how to get it."""
    paths = [path for file in entry.files if (path := find(file))]
    if not entry.files:
        return "built in"
    if len(paths) == len(entry.files):
        return str(paths[0] if len(paths) == 1 else paths[0].parent)
    remedy = f"robustpll datasets get {entry.name}" if entry.is_downloadable else entry.source
    return f"not here: {remedy}"
