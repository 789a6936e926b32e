"""What a command prints: names that a terminal lacks, full disks and readers that went away."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper


@contextmanager
def streams() -> Iterator[None]:
    """Within it letters that the terminal cannot show are escaped, and failed output is told.

    A reader that went away, such as `head`, ends the command without a word.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # as it is if it was closed before
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        _close_output()
        if error.errno != errno.EPIPE:
            with suppress(OSError, AttributeError):  # the same may hold of stderr
                reason = error.strerror or error
                sys.stderr.write(f"What the command prints cannot be written: {reason}.\n")
        sys.exit(1)


def _close_output() -> None:
    """What is still to be printed goes nowhere, so that Python does not fail at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
