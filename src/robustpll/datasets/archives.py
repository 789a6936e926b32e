"""Taking in a real-world dataset that a person downloaded: a .mat file, or an archive with one."""

import lzma
import stat
import tarfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Self

from robustpll._files import refuse_replacing, write_whole
from robustpll.datasets.bounded import Source, most_from, read_up_to
from robustpll.datasets.catalog import Entry, File, data_folders, how_to_get
from robustpll.datasets.download import MOST_BYTES, Say, nobody, sentences_for_disk_errors
from robustpll.errors import InputError

MOST_MEMBERS = 10_000  # of an archive; those of the datasets have a few
MOST_ABOUT = 2**16  # bytes of a long name or the like in a tar, which is read at once
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others zipfile unpacks all at once
FOREIGN = {b"Rar!": ".rar", b"7z\xbc\xaf": ".7z"}  # how archives begin that Python cannot open
MEMBERS = (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE)  # of a tar; others are links, or headers
DAMAGE = (
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # a password
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def add(entry: Entry, source: Path, say: Say = nobody) -> Path:
    """Where a real-world dataset is, after its .mat file was found sound and put there.

    >>> from robustpll.datasets.catalog import entry_of
    >>> add(entry_of("digits"), Path("digits.mat"))
    Traceback (most recent call last):
    robustpll.errors.InputError: Only real-world datasets are added; Digits is built in.
    """
    if entry.kind != "real-world":
        way = f"is none. {how_to_get(entry)}" if entry.files else "is built in."
        raise InputError(f"Only real-world datasets are added; {entry.title} {way}")
    target = data_folders()[0] / entry.files[0].path
    with sentences_for_disk_errors(target), TemporaryDirectory() as folder:
        content = _mat_in(source)
        copy = Path(folder) / target.name
        with sentences_for_disk_errors(copy):
            copy.write_bytes(content)
        for note in _notes(entry, copy, source):
            say(f"{source}: {note}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_replacing(target, content.startswith, f"what {source} holds")
        write_whole(target, content)
    return target


def _notes(entry: Entry, copy: Path, source: Path) -> tuple[str, ...]:
    """What is odd about a dataset; an error if it is unsound, or another one beyond doubt."""
    from robustpll.datasets.mat import load

    try:
        found = load(replace(entry, files=(File(str(copy), None, None),)))
    except InputError as error:
        raise InputError(str(error).replace(str(copy), str(source))) from error
    n, k = len(found), len(found.classes)
    if n != entry.rows and k != entry.classes:
        raise InputError(
            f"{source} has {n} rows and {k} classes; {entry.title} has {entry.rows} and "
            f"{entry.classes}. It is another dataset: pass the name that belongs to it."
        )
    return found.notes


def _mat_in(source: Path) -> bytes:
    """The .mat file itself, or the one in an archive."""
    if not source.is_file():
        raise InputError(f"There is no file {source}.")
    with source.open("rb") as file:
        start = file.read(4)
    if start in FOREIGN:
        raise InputError(
            f"{source} is a {FOREIGN[start]} archive. Unpack it first and pass its .mat file."
        )
    try:
        if zipfile.is_zipfile(source):
            return _mat_in_zip(source)
        if (archive := _tar(source)) is not None:
            with archive:
                return _mat_in_tar(source, archive)
    except DAMAGE as error:
        raise InputError(
            f"{source} cannot be unpacked: {error}. Get it anew, or unpack it by hand."
        ) from error
    _refuse_large(source, source.stat().st_size)
    return source.read_bytes()


def _mat_in_zip(source: Path) -> bytes:
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        _refuse_many(source, len(members))
        for member in members:
            link = stat.S_ISLNK(member.external_attr >> 16)
            _refuse_outside(source, member.filename, link)
        chosen = _the_mat(source, [member.filename for member in members])
        about = archive.getinfo(chosen)
        if about.compress_type not in PLAIN:
            raise zipfile.BadZipFile("its .mat file is compressed in an unusual way")
        _refuse_large(source, about.file_size)
        with archive.open(chosen) as member_file:
            return _content(source, member_file)


class _Header(tarfile.TarInfo):
    """Is refused where it announces a name, or the like, that would fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type not in MEMBERS and header.size > MOST_ABOUT:
            raise tarfile.TarError(f"a header in it has {header.size} bytes")
        return header


def _tar(source: Path) -> tarfile.TarFile | None:
    """The open archive; None if it is none."""
    try:
        return tarfile.open(source, tarinfo=_Header)
    except tarfile.ReadError:
        return None


def _mat_in_tar(source: Path, archive: tarfile.TarFile) -> bytes:
    size = 0
    for count, member in enumerate(archive, 1):  # unpacks all of it: its size is watched on the way
        size += member.size
        _refuse_many(source, count)
        _refuse_large(source, size)
        _refuse_outside(source, member.name, not (member.isfile() or member.isdir()))
    chosen = archive.extractfile(_the_mat(source, archive.getnames()))
    return _content(source, chosen) if chosen else b""


def _content(source: Path, member_file: Source) -> bytes:
    content = read_up_to(member_file, _most(source))
    _refuse_large(source, len(content))
    return content


def _refuse_outside(source: Path, name: str, link: bool) -> None:
    path = PureWindowsPath(name)  # takes both kinds of slashes, and drives
    if link or path.anchor or ".." in path.parts:
        raise InputError(
            f"{source} has a member {name!r}, which is a link or lies outside of the archive's own "
            "folder. Nothing was taken from it: get it from where you trust it."
        )


def _the_mat(source: Path, names: list[str]) -> str:
    found = [
        name
        for name in names
        if name.lower().endswith(".mat") and not PureWindowsPath(name).name.startswith("._")
    ]
    if len(found) != 1:
        raise InputError(
            f"{source} must have one .mat file; found {', '.join(found) or 'none'}. Unpack it and "
            "pass the right file."
        )
    return found[0]


def _refuse_many(source: Path, count: int) -> None:
    if count > MOST_MEMBERS:
        raise InputError(
            f"{source} holds more than {MOST_MEMBERS} files; the archives of the datasets hold a "
            "few. Unpack it by hand, and pass its .mat file."
        )


def _most(source: Path) -> int:
    """Bytes that an archive may hold."""
    return most_from(source.stat().st_size, MOST_BYTES)


def _refuse_large(source: Path, size: int) -> None:
    if size > _most(source):
        raise InputError(
            f"{source} holds more than {_most(source):,} bytes: too much for a dataset, or for an "
            "archive of its size. If you trust it, unpack it by hand, and pass its .mat file."
        )
