"""Whether a table is too large to learn from, told before memory runs out."""

import gzip
import zlib
from pathlib import Path

from robustpll.errors import InputError, count_of_variable

CELL_BYTES = 40  # the table, and its numbers before and after scaling
ROW_BYTES = 3000  # candidates, and the hidden layer of held-out rows
LOOKED_AT = 2**20  # bytes, to guess how long the rows of a CSV file are
PACKED = 4  # how much longer a table is than its gzip file, in most cases


def refuse_too_large(path: Path) -> None:
    """Refuse a table that takes more memory than is free; what is no table is not judged here."""
    free = free_bytes()
    cells, rows = _cells(path)
    needed = cells * CELL_BYTES + rows * ROW_BYTES
    if free is not None and needed > free:
        raise InputError(
            f"{path} is too large to learn from here: about {rows:,} rows take some "
            f"{needed / 2**30:,.1f} GiB of memory, of which {free / 2**30:,.1f} GiB are free. "
            f"Learn from {int(rows * free / needed * 0.8):,} rows of it, drawn at random; predict "
            "takes tables of any size."
        )


def free_bytes() -> int | None:
    """Memory that is free for this process; None where nobody says.

    The environment variable ROBUSTPLL_HOST_BYTES sets another limit.

    >>> free_bytes() is None or free_bytes() > 0
    True
    """
    asked = count_of_variable("ROBUSTPLL_HOST_BYTES")
    if asked is not None:
        return asked
    lines = _text("/proc/meminfo").splitlines()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = (_text(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        stat = dict(line.split() for line in _text("/sys/fs/cgroup/memory.stat").splitlines())
        found.append(int(limit) - int(used) + int(stat.get("inactive_file", 0)))
    return min(found, default=None)


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _cells(path: Path) -> tuple[int, int]:
    """About how many cells and rows a file has; 0 where it is none that can be read."""
    from robustpll.tables.source import PARQUET, parquet_file

    if not path.is_file():
        return 0, 0
    if path.suffix.lower() in PARQUET:
        with parquet_file(path) as file:
            return file.metadata.num_rows * file.metadata.num_columns, file.metadata.num_rows
    packed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as raw:
            seen = raw.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        seen = b""  # it is refused where it is read
    if not seen:
        return 0, 0
    times = path.stat().st_size * (PACKED if packed else 1) / len(seen)
    rows = seen.count(b"\n") or seen.count(b"\r")
    marks = max(seen.count(mark) for mark in (b",", b";", b"\t"))
    return round((marks + rows) * times), round(rows * times)
