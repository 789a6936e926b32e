"""How commands speak to people about what went wrong."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import typer

from robustpll._files import refuse_replacing
from robustpll.errors import InputError, RobustPLLError


def say(sentence: str) -> None:
    """A sentence for people, beside what a command prints for other programs."""
    typer.echo(sentence, err=True)


@contextmanager
def warnings_said(kind: type[Warning]) -> Iterator[None]:
    """Warnings of this kind are sentences on stderr, without lines of code; others stay warnings.

    >>> import warnings
    >>> with warnings_said(UserWarning):
    ...     warnings.warn("Two rows were decided twice.")
    """
    import warnings

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", kind)
        yield
    for one in warned:
        if issubclass(one.category, kind):
            say(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


@contextmanager
def refusals(stopped: str = "", left: str = "") -> Iterator[None]:
    """Errors of the library, of disk and memory are sentences and exit code 1, not tracebacks.

    So is Ctrl-C, with exit code 130, where there is something to say of what it leaves. `left` is
    what any other failure leaves.
    """
    try:
        with _told_of_failures(left):
            yield
    except KeyboardInterrupt:
        if not stopped:
            raise
        say(f"Stopped. {stopped}")
        raise typer.Exit(130) from None
    except RobustPLLError as error:
        say(str(error))
    except BrokenPipeError:  # nobody reads any more
        raise
    except OSError as error:
        say(f"{error.filename or 'A file'} cannot be read or written: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        words = str(error).lower()  # torch has no error of its own for the memory of a CPU
        if not isinstance(error, MemoryError) and "memory" not in words:
            raise
        say("This takes more memory than there is. Take fewer rows or columns.")
    else:
        return
    raise typer.Exit(1) from None


@contextmanager
def _told_of_failures(left: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        if left:
            say(left)
        raise


def refuse_unwritable(
    path: Path, inputs: Iterable[Path], is_ours: Callable[[bytes], bool], what: str
) -> None:
    """Before hours of work: whether a file can be written there, and nothing else is lost by it.

    A file that is there must be `what` we wrote before, as `is_ours` tells by its beginning.

    >>> refuse_unwritable(Path("nowhere/model.pll"), (), bool, "a model")
    Traceback (most recent call last):
    robustpll.errors.InputError: nowhere/model.pll cannot be written: there is no folder nowhere...
    """
    import tempfile

    folder = path.parent
    if path.is_dir():
        raise InputError(
            f"{path} is a folder. Name a file in it, such as {path / 'out'}{path.suffix}."
        )
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Make it first.")
    for other in inputs:
        if path.exists() and other.exists() and path.samefile(other):
            raise InputError(f"{path} is what is read, and would be lost. Write to another file.")
    refuse_replacing(path, is_ours, what)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. Name another folder."
        ) from error


def nearest(name: str, names: Iterable[str]) -> str:
    """A question about what may have been meant; "" if nothing is like it.

    >>> nearest("prodne", ["proden", "pop"])
    " Did you mean 'proden'?"
    """
    close = get_close_matches(name, list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
