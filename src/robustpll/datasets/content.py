"""Which version of its files a dataset is, by the SHA-256 of what they hold."""

import hashlib
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from robustpll.datasets.catalog import Entry, File, entry_of, existing, how_to_get
from robustpll.errors import InputError

DIGITS = 16  # of a sum: enough to tell versions apart, and short enough for a file's name
USUAL = "usual"  # what people call the version whose sum the catalogue knows


def version_of(entry: Entry, sums: Sequence[str]) -> str:
    """Of files with these sums: "" for those that the catalogue knows, else some digits.

    >>> version_of(entry_of("soccer"), ["5feceb66ffc86f38d952786c6d696c79"])
    '8a3cd52a2ff9ace1'
    """
    pairs = zip(entry.files, sums, strict=True)
    if all(content in (file.content, file.usual) for file, content in pairs):
        return ""
    return hashlib.sha256("".join(sums).encode()).hexdigest()[:DIGITS]


def refuse_unpublished(entry: Entry, file: File, path: Path, content: str) -> None:
    """Where the catalogue has the sum of a file, nothing else is taken for it."""
    if file.content not in (None, content):
        raise InputError(
            f"{path} does not hold what is published: the SHA-256 of its content is {content}, "
            f"that of {entry.title} is {file.content}. {how_to_get(entry)}"
        )


def version_here(name: str) -> str:
    """Which version of a dataset's files is here, without loading them.

    Files whose sum is published are not read: nothing else is ever loaded. The others are read
    once, unless they change.

    >>> version_here("digits")
    ''
    """
    entry = entry_of(name)
    if all(file.content for file in entry.files):
        return ""
    return version_of(entry, [_sum_here(entry, file) for file in entry.files])


def _sum_here(entry: Entry, file: File) -> str:
    path = existing(entry, file)
    facts = path.stat()
    return _sum(path, file, (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino))


@lru_cache(maxsize=64)
def _sum(path: Path, file: File, _facts: tuple[int, ...]) -> str:
    """ "" of a file that cannot be read: whoever loads it says why."""
    from robustpll.datasets.download import content_sum

    try:
        return content_sum(path, file)
    except (OSError, EOFError, zlib.error, InputError):
        return ""
