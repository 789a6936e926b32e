"""How commands print messages, lists, warnings and errors."""

import errno
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer

from robustpll._files import refuse_replacing
from robustpll.errors import InputError, RobustPLLError

ARGUMENTS = (
    "candidates|separator|indicators|votes|truth|ignore|categories|unanswered|errors|missing|"
    "encoding|delimiter|decimal|images"
)
REWORDED = {"errors_to": "errors", "`images_root`": "--images-root", "as out.": "as --out."}


def say(message: str) -> None:
    """Print a message for people on stderr; stdout is for other programs."""
    typer.echo(message, err=True)


def as_options(message: str) -> str:
    """Return a message about arguments, delimiter=';', in terms of options, --delimiter ';'."""
    for argument, option in REWORDED.items():
        message = message.replace(argument, option)
    message = re.sub(r"split it: y = .*split\((.*?)\).*", r"pass --separator \1.", message)
    message = re.sub(rf"`({ARGUMENTS})`", r"--\1", message)
    return re.sub(rf"\b({ARGUMENTS})=(?=['\"])", r"--\1 ", message)


def show_list(heading: Sequence[str], rows: Iterable[Sequence[Any]], limit: int = 30) -> None:
    """Print the first rows of a list as a table without lines; numbers are aligned right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # names from the table must not be read as markup or as control characters
    cells = [[text if text.isprintable() else repr(text) for text in map(str, r)] for r in rows]
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, name in enumerate(heading):
        number = all(re.fullmatch(r"[\d,.]+%?|-", row[index]) for row in cells)
        shown.add_column(name, overflow="fold", justify="right" if number else "left")
    for row in cells[:limit]:
        shown.add_row(*map(Text, row))
    Console(highlight=False).print("", shown, sep="\n")
    if len(cells) > limit:
        typer.echo(f"and {len(cells) - limit:,} more")


@contextmanager
def errors_as_messages(stopped: str = "", left: str = "", about: str = "") -> Iterator[None]:
    """Print warnings and expected errors as one message each; errors end with exit code 1.

    If `stopped` is given, Ctrl-C prints it and exits with code 130. `left` says which files a
    failure leaves behind. Warnings start with `about`.
    """
    show_other = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            say(about + as_options(str(message)))
        else:
            show_other(message, category, *place, **more)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
    except KeyboardInterrupt:
        if not stopped:
            raise
        say(f"Stopped. {stopped}")
        raise typer.Exit(130) from None
    except Exception as error:
        if left:
            say(left)
        # torch raises a RuntimeError if the memory of the CPU runs out
        torch_error = isinstance(error, RuntimeError) and "memory" in str(error).lower()
        if isinstance(error, RobustPLLError):
            say(as_options(str(error)))
        elif isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            say(f"{error.filename or 'A file'} cannot be read or written: {reason}.")
        elif isinstance(error, MemoryError) or torch_error:
            say("There is not enough memory. Use fewer rows or columns.")
        else:  # a fault of the program
            raise
        raise typer.Exit(1) from None


def refuse_unwritable(
    path: Path, inputs: Iterable[Path], is_ours: Callable[[bytes], bool], what: str
) -> None:
    """Raise before a long computation if `path` cannot be written or would destroy another file.

    An existing file must be `what` the command wrote before: `is_ours` gets its first bytes.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file in it, such as {path / 'out'}.")
    if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
        raise InputError(f"{path} is an input and would be overwritten. Write to another file.")
    refuse_replacing(path, is_ours, what)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path} cannot be written: {reason}. Name another folder.") from error


@contextmanager
def safe_streams() -> Iterator[None]:
    """Escape characters that the terminal cannot show, and report output that cannot be written.

    The command ends silently if the reader of a pipe, such as `head`, has gone away.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # it is None if it was closed before the start
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        with suppress(OSError, ValueError, AttributeError):  # Python flushes stdout at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            with suppress(OSError, AttributeError):  # stderr may fail for the same reason
                sys.stderr.write(f"The output cannot be written: {error.strerror or error}.\n")
        sys.exit(1)
