"""How commands speak to people about what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


def say(sentence: str) -> None:
    """A sentence for people, beside what a command prints for other programs."""
    typer.echo(sentence, err=True)


@contextmanager
def refusals() -> Iterator[None]:
    """Errors of the library are sentences and exit code 1, not tracebacks."""
    from robustpll.errors import RobustPLLError

    try:
        yield
    except RobustPLLError as error:
        say(str(error))
        raise typer.Exit(1) from None
