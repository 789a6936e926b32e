"""How commands report errors, warnings and output that cannot be printed."""

import errno
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

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


@contextmanager
def refusals(stopped: str = "", left: str = "") -> Iterator[None]:
    """Turn expected errors into one sentence on stderr and exit code 1.

    If `stopped` is given, Ctrl-C prints it and exits with code 130. `left` is printed after any
    failure; it says which files the command leaves behind.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not stopped:
            raise
        say(f"Stopped. {stopped}")
        raise typer.Exit(130) from None
    except Exception as error:
        if left:
            say(left)
        message = _message(error)
        if not message:
            raise
        say(message)
        raise typer.Exit(1) from None


def _message(error: Exception) -> str:
    """Return the sentence for an expected error, and "" for a fault of the program."""
    if isinstance(error, RobustPLLError):
        return as_options(str(error))
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        file, reason = error.filename or "A file", error.strerror or error
        return f"{file} cannot be read or written: {reason}."
    # torch raises a RuntimeError if the memory of the CPU runs out
    torch_error = isinstance(error, RuntimeError) and "memory" in str(error).lower()
    if isinstance(error, MemoryError) or torch_error:
        return "There is not enough memory. Use fewer rows or columns."
    return ""


@contextmanager
def warnings_said(kind: type[Warning], prefix: str = "") -> Iterator[None]:
    """Print warnings of one kind as sentences on stderr; the others stay warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", kind)
        yield
    for warning in caught:
        if issubclass(warning.category, kind):
            say(prefix + as_options(str(warning.message)))
        else:
            source = warning.filename, warning.lineno
            warnings.warn_explicit(warning.message, warning.category, *source)


def refuse_unwritable(
    path: Path, inputs: Iterable[Path], is_ours: Callable[[bytes], bool], what: str
) -> None:
    """Raise before a long computation if `path` cannot be written or would destroy another file.

    An existing file must be `what` the command wrote before: `is_ours` gets its first bytes.
    """
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file in it, such as {path / 'out'}.")
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Create it first.")
    if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
        raise InputError(f"{path} is an input and would be overwritten. Write to another file.")
    refuse_replacing(path, is_ours, what)
    try:
        with tempfile.TemporaryFile(dir=folder):
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
