"""Pictures in files: where they may lie, and how they become one array of bytes."""

import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, count_of_variable, is_count, some_of
from robustpll.tables.source import SHOWN, BadRow, Lines

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")  # other formats may run programs
MISSING, BACKSLASH, OUTSIDE = "missing", "with a backslash", "outside the folder"
REASONS = {
    "": "names no picture",
    MISSING: "is missing, or is a folder",
    BACKSLASH: "is missing: write / instead of \\",
    OUTSIDE: "is outside the folder: pass the folder of all pictures as `images_root`",
}
NO_PICTURE = f"is not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, or its beginning is damaged"
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")  # modes of Pillow
SIZE, LARGEST_SIZE = 64, 1024  # pixels of a side: if pictures are larger or differ; and at most
THREADS = 8
DARK = 4096  # pictures of 16 bits with smaller numbers hold 8 or 12 bits, or hardly any light
ORIENTATION = 0x0112  # tag of EXIF; from 5 on, height and width are exchanged

Size = tuple[int, int]  # height and width
Bytes = NDArray[np.uint8]


def read_images(
    paths: Iterable[str | Path], size: int | str | Size | None = None, *, folder: str | Path = ""
) -> Bytes:
    """Read picture files into one array (n, 3, h, w), or (n, 1, h, w) if all pictures are grey.

    They are turned upright as their EXIF data say, stretched to one size, and converted to RGB;
    transparent parts become white, and 16 bits become 8.

    Parameters
    ----------
    paths
        PNG, JPEG, GIF, WEBP, BMP or TIFF files, relative to the `folder`.
    size : int, (height, width), "48x64" or None
        None is the size of the pictures if all have the same, of at most 64 pixels a side;
        otherwise 64.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (40, 20)).save(f"{folder}/a.png")
    ...     read_images(["a.png"], folder=folder).shape, read_images([f"{folder}/a.png"], 8).shape
    ((1, 3, 20, 40), (1, 3, 8, 8))
    """
    if isinstance(paths, str | Path):
        raise InputError(f"paths must be a list of paths; got {paths!r}. Pass [{str(paths)!r}].")
    names = [str(path) for path in paths]
    files = [Path(folder, name) for name in names]
    pictures, faults = decoded([f if f.is_file() else MISSING for f in files], size_of(size))
    if faults:
        first = some_of((f"{names[row]!r} {fault}" for row, fault in faults.items()), 3)
        problem = f"{len(faults):,} of {len(names):,} pictures cannot be read ({first})"
        raise InputError(f"paths: {problem}. Replace these files, or leave them out.")
    return pictures


def size_of(size: Any) -> Size | None:
    """Return height and width.

    >>> size_of(32), size_of("48x64"), size_of(None)
    ((32, 32), (48, 64), None)
    """
    if size is None:
        return None
    sides: Any = [size] * 2 if is_count(size) else size
    if isinstance(size, str):
        sides = [int(side) if side.isdecimal() else 0 for side in size.lower().split("x")]
        sides *= 2 if len(sides) == 1 else 1
    is_pair = isinstance(sides, list | tuple) and len(sides) == 2
    if is_pair and all(is_count(side, 1) and side <= LARGEST_SIZE for side in sides):
        return int(sides[0]), int(sides[1])
    rule = f"a side such as 64, or height and width as in 48x64, of at most {LARGEST_SIZE} pixels"
    raise InputError(f"image_size={size!r}: it must be {rule}.")


@dataclass(frozen=True)
class PictureColumn:
    """A column with paths of pictures, and how these are read."""

    name: str
    folder: Path  # of the table
    root: Path | None = None  # pictures must be below it; None is the table's folder
    size: Size | None = None  # as in `read_images`
    grey: bool | None = None  # None: if all are

    def read(self, cells: Iterable[Any], lines: Lines) -> tuple[Bytes, list[BadRow]]:
        """Return the pictures that can be read, and a fault for each other row."""
        root = self.root or self.folder
        names = [str(cell).strip() if isinstance(cell, str | Path) else "" for cell in cells]
        files = [located(name, self.folder, root) if name else "" for name in names]
        pictures, faults = decoded(files, self.size, self.grey)
        bad = [
            BadRow(int(lines[row]), self.name, names[row][:SHOWN], fault)
            for row, fault in faults.items()
        ]
        return (np.delete(pictures, [*faults], 0) if faults else pictures), bad


def located(name: str, table_folder: Path, root: Path) -> Path | str:
    """Return the file below `root` that a cell names, or why it is not used.

    Paths are relative to `root` or to the table's folder; links must not lead out of `root`.
    """
    try:
        paths = [(folder.resolve() / name).resolve() for folder in (root, table_folder)]
        inside = [path for path in paths if path.is_relative_to(root.resolve())]
        files = [path for path in inside if path.is_file()]  # a pipe or a device would block
    except (OSError, ValueError, RuntimeError):  # impossible names, circular links
        return MISSING
    absent = BACKSLASH if "\\" in name else MISSING
    return files[0] if files else absent if inside else OUTSIDE


def decoded(
    files: Sequence[Path | str], size: Size | None, grey: bool | None = None
) -> tuple[Bytes, dict[int, str]]:
    """Return pictures (n, 3, h, w) or (n, 1, h, w), and by row why some cannot be read.

    A row that is no path has a key of `REASONS`. Rows that cannot be read are 0.
    """
    faults = {row: REASONS[file] for row, file in enumerate(files) if isinstance(file, str)}
    rows = [row for row in range(len(files)) if row not in faults]
    with bombs_as_errors(), ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        if size is None or grey is None:
            heads = [head for head in pool.map(_head, (files[row] for row in rows)) if head]
            grey = all(head[1] for head in heads) if grey is None else grey
            sizes = {head[0] for head in heads}
            common = sizes.pop() if len(sizes) == 1 else (SIZE, SIZE)
            size = size or (common if max(common) <= SIZE else (SIZE, SIZE))
        shape = (len(files), 1 if grey else 3, *size)
        refuse_too_many(shape)
        pictures = np.zeros(shape, dtype=np.uint8)

        def fill(row: int) -> str:
            try:
                picture = _resized(files[row], size, "L" if grey else "RGB")
                pictures[row] = picture.reshape(*size, -1).transpose(2, 0, 1)
            except Exception as error:  # Pillow documents no exceptions for damaged files
                return fault_of(error)
            return ""

        texts = pool.map(fill, rows)
        faults |= {row: fault for row, fault in zip(rows, texts, strict=True) if fault}
    return pictures, dict(sorted(faults.items()))


def _head(path: Any) -> tuple[Size, bool] | None:
    """Return the size of a picture and whether it is grey, or None if it cannot be read."""
    from PIL import Image

    with suppress(Exception), Image.open(path, formats=FORMATS) as opened:
        width, height = opened.size
        is_turned = opened.getexif().get(ORIENTATION, 1) >= 5
        return (width, height) if is_turned else (height, width), opened.mode in GREY
    return None


def upright(path: Any, pixels: int) -> Any:
    """Open a picture of 8 bits and of mode L, RGB or RGBA (if transparent), turned upright.

    A JPEG file may be read smaller than it is, with at least twice so many `pixels` a side.
    """
    from PIL import Image, ImageOps

    with Image.open(path, formats=FORMATS) as opened:
        opened.draft("RGB", (2 * pixels, 2 * pixels))  # saves time and memory
        picture = ImageOps.exif_transpose(opened)
    if picture.mode == "F":
        raise InputError("has pixels in floating point: convert it to 8 bits")
    if picture.mode.startswith("I"):  # convert() would cut off at 255
        values = np.asarray(picture).clip(0, 65535)
        most = int(values.max())
        if picture.mode == "I" and most < 256:
            return Image.fromarray(values.astype(np.uint8))
        if 0 < most < DARK:
            fault = f"is black as one of 16 bits, whose largest number is {most:,} of 65,535"
            raise InputError(f"{fault}: convert it to 8 bits")
        return Image.fromarray((values // 256).astype(np.uint8))
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture.convert("L" if picture.mode in GREY else "RGB")


def _resized(path: Any, size: Size, mode: str) -> Bytes:
    """Return a picture (h, w) or (h, w, 3)."""
    from PIL import Image

    picture = upright(path, max(size))
    if picture.mode == "RGBA":
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    resampling = Image.Resampling.BILINEAR
    return np.asarray(picture.convert(mode).resize(size[::-1], resampling, reducing_gap=2))


@contextmanager
def bombs_as_errors() -> Any:
    """Make errors of pictures that may be meant to fill the memory, and ignore other warnings.

    Filters of warnings hold for all threads: enter this before threads start.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def fault_of(error: Exception) -> str:
    """Return why a picture cannot be read."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return NO_PICTURE
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"has more than {Image.MAX_IMAGE_PIXELS:,} pixels: make it smaller"
    return f"is damaged ({some_of([error])})"


def refuse_too_many(shape: tuple[int, ...]) -> None:
    """Raise if there is no room for pictures and a copy of them."""
    needed, free = 2 * int(np.prod(shape)), free_memory()
    if needed > free:
        what = f"{shape[0]:,} pictures of {' x '.join(map(str, shape[1:]))} bytes"
        amounts = f"take {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"
        raise InputError(f"{what} {amounts}. Pass a smaller `image_size`, or use fewer rows.")


def free_memory() -> int:
    """Return the bytes of memory that this process may still take."""
    import psutil

    free = count_of_variable("ROBUSTPLL_HOST_BYTES")
    if free is None:
        free = int(psutil.virtual_memory().available)
        with suppress(OSError, ValueError):  # there is a limit only in some containers
            free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free
