"""Refuses a table that is too large for the memory, before it is read."""

import gzip
import zlib
from pathlib import Path

from robustpll.errors import InputError, count_of_variable

CELL_BYTES = 40  # the table, and its numbers before and after scaling
ROW_BYTES = 3000  # candidates, and the hidden layer of held-out rows
SAMPLE_BYTES = 2**20  # to estimate the length of the rows of a CSV file
COMPRESSION = 4  # usual size of a table divided by the size of its gzip file


def refuse_too_large(path: Path) -> None:
    """Raise if training on a table would take more memory than is free."""
    free = free_bytes()
    cells, rows = estimated_size(path)
    needed = cells * CELL_BYTES + rows * ROW_BYTES
    if needed > free:
        raise InputError(
            f"{path} is too large to learn from here: about {rows:,} rows take "
            f"{needed / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB are free. Use a "
            f"random sample of {int(rows * free / needed * 0.8):,} rows."
        )


def free_bytes() -> int:
    """Return the memory that is free for this process, or the limit in ROBUSTPLL_HOST_BYTES."""
    import psutil

    limit = count_of_variable("ROBUSTPLL_HOST_BYTES")
    if limit is not None:
        return limit
    free = int(psutil.virtual_memory().available)
    cgroup = Path("/sys/fs/cgroup")
    try:  # psutil does not see the limit of a container
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # there is no limit
        return free
    return min(free, limit - used + int(stat.get("inactive_file", 0)))


def estimated_size(path: Path) -> tuple[int, int]:
    """Estimate the numbers of cells and rows of a table; 0 and 0 if it cannot be read."""
    from robustpll.tables.source import PARQUET, parquet_file

    if not path.is_file():
        return 0, 0
    if path.suffix.lower() in PARQUET:
        with parquet_file(path) as file:
            return file.metadata.num_rows * file.metadata.num_columns, file.metadata.num_rows
    compressed, size = path.suffix.lower() == ".gz", path.stat().st_size
    try:
        with gzip.open(path) if compressed else path.open("rb") as raw:
            sample = raw.read(SAMPLE_BYTES)
    except (OSError, EOFError, zlib.error):  # reading the table reports it
        return 0, 0
    factor = size * (COMPRESSION if compressed else 1) / max(1, len(sample))
    rows = sample.count(b"\n") or sample.count(b"\r")
    delimiters = max(sample.count(mark) for mark in (b",", b";", b"\t"))
    return round((delimiters + rows) * factor), round(rows * factor)
