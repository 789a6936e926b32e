"""How commands print messages, lists, warnings and errors."""

import errno
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer

from robustpll._files import refuse_missing_folder, refuse_replacing
from robustpll.errors import InputError, RobustPLLError

ARGUMENTS = (
    "candidates|separator|indicators|votes|truth|ignore|categories|unanswered|errors|missing|"
    "encoding|delimiter|decimal|images|answers|item|annotator|label|confidence|duplicates|question|"
    "unsure|rename|id|image_input|image_size|images_root|text|skip_bad_rows"
)
# what messages advise in Python, and what they advise in commands
PYTHON = {
    r"split it: y = .*split\((.*?)\).*": r"pass --separator \1.",
    r"To name others, pass Candidates.*": "--separator '/' splits sets such as a/b.",
    r"(than (?!Wrapped).*) Consider .*random_forest.*": r"\1 --method wrapped fits a forest, too.",
    r" Consider PLLClassifier.*": "",
    r"Use save\(path\) instead.*": "Use `robustpll predict` with the model file.",
    r"`ignore` to leave it out": "--id if it names rows, in --ignore to leave it out",
    "errors_to": "errors",
    r"on_bad_rows='skip'": "`skip_bad_rows`",
}


def say(message: str) -> None:
    """Print a message for people on stderr; stdout is for other programs."""
    typer.echo(message, err=True)


def as_options(message: str) -> str:
    """Return a message about arguments, delimiter=';', in terms of options, --delimiter ";"."""
    for advice, for_commands in PYTHON.items():
        message = re.sub(advice, for_commands, message)
    message = re.sub(rf"\b({ARGUMENTS})=(?=['\"])", r"`\1` ", message)
    message = re.sub(rf"`({ARGUMENTS})`", lambda name: f"--{name[1].replace('_', '-')}", message)
    # to be typed: only double quotes work in every shell, also on Windows
    return re.sub(r"""(--[a-z-]+) '([^'"\\$`]*)'(?!:)""", r'\1 "\2"', message)


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
def errors_as_messages(stopped: str = "", about: str = "") -> Iterator[None]:
    """Print warnings and expected errors as one message each; errors end with exit code 1.

    Ctrl-C prints `stopped` and exits with code 130. Warnings start with `about`.
    """
    show_other, say_once = warnings.showwarning, cache(say)

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            say_once(about + as_options(str(message)))
        else:
            show_other(message, category, *place, **more)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
    except KeyboardInterrupt:
        say(f"Stopped. {stopped}".rstrip())
        raise typer.Exit(130) from None
    except RobustPLLError as error:
        fault = as_options(str(error))
    except BrokenPipeError:  # the reader of the output has gone
        raise
    except OSError as error:
        file, reason = error.filename or "A file", error.strerror or error
        fault = f"{file} cannot be read or written: {reason}."
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError if the memory runs out
        if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
            raise
        fault = "There is not enough memory. Use fewer rows or columns."
    else:
        return
    say(fault)
    raise typer.Exit(1)


def refuse_unwritable(path: Path, inputs: Iterable[Path], start: bytes, what: str) -> None:
    """Raise before a long computation if `path` cannot be written or would destroy another file.

    An existing file must be `what` the command wrote before, and match the expression `start`.
    """
    if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
        raise InputError(f"{path} is an input and would be overwritten. Write to another file.")
    refuse_replacing(path, lambda content: bool(re.match(start, content, re.DOTALL)), what)
    refuse_missing_folder(path)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error


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
