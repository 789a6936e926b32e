"""`robustpll datasets`: which there are, and where; `get` fetches them, `add` takes a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustpll.cli.messages import refusals, say
from robustpll.datasets.catalog import CATALOG, Entry, entry_of, find
from robustpll.errors import RobustPLLError

if TYPE_CHECKING:
    from robustpll.datasets.download import Say, Tell

app = typer.Typer(help="List, fetch and add datasets.", invoke_without_command=True)


@app.callback()
def datasets(context: typer.Context) -> None:
    """List the datasets, where each was found, and how to get the others."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("title", overflow="fold")
    for heading in ("rows", "features", "classes", "candidates"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("licence", overflow="fold")
    for entry in CATALOG.values():
        sizes = (f"{size:,}" for size in (entry.rows, entry.features, entry.classes))
        candidates = "-" if entry.candidates is None else f"{entry.candidates:.2f}"
        table.add_row(entry.name, entry.title, *sizes, candidates, entry.licence)
    console = Console(highlight=False)
    console.print(table)
    console.print("candidates: of a row, on average; - where noise makes them\n")
    with refusals():
        for entry in CATALOG.values():  # not in the table: a path that is cut or folded is no use
            typer.echo(f"{entry.name:12}{_place(entry)}")
        absent = [entry for entry in CATALOG.values() if not _is_here(entry)]
    for sentence in _ways_to_get(absent):
        console.print(f"\n{sentence}")


@app.command()
def get(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Datasets; 'all' for those that can be fetched."),
    ],
) -> None:
    """Fetch datasets from their public addresses and check them; what is here is kept."""
    from robustpll.datasets.download import fetch

    with refusals():
        everything = [name for name, entry in CATALOG.items() if _can_be_fetched(entry)]
        entries = [entry_of(name) for name in (everything if "all" in names else names)]
    failed = False
    with refusals(stopped="What came so far is kept; the same command goes on from there."):
        for entry in entries:
            try:
                with _listeners() as (say, tell):
                    fetch(entry, say, tell)
            except RobustPLLError as error:  # the others may still be had
                say(str(error))
                failed = True
            else:
                typer.echo(f"{entry.name:12}{_place(entry)}")
    if failed:
        raise typer.Exit(1)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="One of the real-world datasets.")],
    file: Annotated[Path, typer.Argument(help="Its .mat file, or a .zip or .tar with it.")],
) -> None:
    """Put a real-world dataset that you downloaded by hand at its place, if it is sound."""
    from robustpll.datasets.archives import add as add_file

    with refusals():
        path = add_file(entry_of(name), file, say)
    typer.echo(f"{name:12}{path}")


@contextmanager
def _listeners() -> "Iterator[tuple[Say, Tell]]":
    """For a download: sentences, and a bar for each file if there is a terminal; all on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bars: dict[str, TaskID] = {}
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as progress:

        def tell(file: str, done: int, total: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=total)
            progress.update(bars[file], completed=done, total=total)

        yield console.print, tell  # what is printed elsewhere would be lost among the bars


def _can_be_fetched(entry: Entry) -> bool:
    return bool(entry.files) and all(file.url for file in entry.files)


def _is_here(entry: Entry) -> bool:
    return all(find(entry, file) for file in entry.files)


def _place(entry: Entry) -> str:
    """Where a dataset was found, in a few words."""
    paths = [path for file in entry.files if (path := find(entry, file))]
    if not entry.files:
        return "built in"
    if not paths:
        return "not here"
    if len(paths) < len(entry.files):
        return f"not here ({len(paths)} of {len(entry.files)} files are)"
    if len(paths) == 1:
        return str(paths[0])
    return ", ".join(dict.fromkeys(str(path.parent) for path in paths))


def _ways_to_get(absent: list[Entry]) -> Iterator[str]:
    """One sentence for all datasets that are had in the same way."""
    if names := [entry.name for entry in absent if _can_be_fetched(entry)]:
        yield f"To get {', '.join(names)}, run\n  robustpll datasets get {' '.join(names)}"
    others = [entry for entry in absent if not _can_be_fetched(entry)]
    for page in dict.fromkeys(entry.source for entry in others):
        names = [entry.name for entry in others if entry.source == page]
        yield (
            f"To get {', '.join(names)}, which no program can fetch, open {page} in a browser, "
            "download the archive, and run\n  robustpll datasets add NAME ARCHIVE"
        )
