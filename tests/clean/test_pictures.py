"""Pictures of a table: only files of its folder, only formats that are pictures, and no failure."""

import base64
import io
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from robustpll.clean import page as page_module
from robustpll.clean.page import NO_PICTURE, Picture, load_pictures, thumbnail
from robustpll.tables.images import FORMATS, MISSING, OUTSIDE

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
AVIF = io.BytesIO()
Image.new("RGB", (40, 20), "red").save(AVIF, "AVIF")
HOSTILE = {
    "script.png": EPS,
    "damaged.avif": AVIF.getvalue()[:-44] + b"\xff" + AVIF.getvalue()[-43:],  # its head is whole
    "damaged.blp": struct.pack("<4sibbbbII", b"BLP2", 1, 9, 8, 0, 0, 4, 4)  # of no such encoding
    + struct.pack("<32I", *[148] * 16, *[16] * 16)
    + bytes(2000),
    "cut.gif": b"GIF89a\x10\x00\x10\x00\x80",
    "cut.tif": b"II*\x00\x08\x00\x00\x00\xff\xff",
    "empty.jpg": b"",
    "words.webp": b"no picture",
}
FORM = ("--candidates", "seen", "--images", "picture")


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (40, 20), kind: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path, kind)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a good picture, one outside, and links of all kinds."""
    folder = tmp_path / "table"
    save(folder / "inside" / "good.png")
    save(tmp_path / "secret.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "up").symlink_to(tmp_path)
    (folder / "alias.png").symlink_to(folder / "inside" / "good.png")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    os.mkfifo(folder / "pipe.png")
    for name, content in HOSTILE.items():
        (folder / name).write_bytes(content)
    return folder


def test_nothing_starts_a_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to Ghostscript, whatever the file is called."""
    started: list[object] = []
    monkeypatch.setattr(subprocess, "check_call", lambda *words, **_: started.append(words))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    assert thumbnail(folder / "script.png") == ""
    assert started == []


def test_what_is_no_picture_or_fails_in_pillow_is_a_placeholder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [Picture(link=name, fault=NO_PICTURE) for name in HOSTILE]
    assert load_pictures([*HOSTILE], folder, folder, large=99) == expected

    def fail(*_: object, **__: object) -> None:
        raise KeyError("encoder")

    monkeypatch.setattr(Image.Image, "save", fail)
    assert load_pictures(["inside/good.png"], folder, folder)[0].fault == NO_PICTURE


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "RGB") for kind in FORMATS),
        *(("PNG", mode) for mode in ("1", "L", "LA", "P", "RGBA")),
        *(("TIFF", mode) for mode in ("CMYK", "I;16")),
    ],
)
def test_a_thumbnail_has_at_most_96_pixels_a_side(tmp_path: Path, kind: str, mode: str) -> None:
    save(tmp_path / "large", mode, (300, 500), kind)
    (picture,) = load_pictures(["large"], tmp_path, tmp_path)
    content = base64.b64decode(picture.thumbnail.removeprefix("data:image/").split(",")[1])
    assert (max(Image.open(io.BytesIO(content)).size), picture.fault) == (96, "")


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["../secret.png", "link.png", "up/secret.png", "/", "..", "/etc/passwd"], OUTSIDE),
        (["none.png", "circle.png", "a\0b", "a" * 5000, "pipe.png", "inside"], MISSING),
        ([""], ""),
    ],
)
def test_what_is_outside_missing_or_no_file_gets_neither_thumbnail_nor_link(
    folder: Path, names: list[str], fault: str
) -> None:
    assert load_pictures(names, folder, folder) == [Picture(fault=fault)] * len(names)


def test_links_are_quoted_and_relative_to_the_page(tmp_path: Path) -> None:
    save(tmp_path / "a b.png")
    (picture,) = load_pictures(["a b.png"], tmp_path, tmp_path / "out")
    assert picture.link == "../a%20b.png"


def table(folder: Path, *names: str) -> Path:
    """Rows of two classes, all in doubt; the paths come first."""
    padded = [*names, *[""] * (30 - len(names))]
    lines = [f"{name},{row % 2}.{row},ant|bee" for row, name in enumerate(padded)]
    path = folder / "pets.csv"
    path.write_text("\n".join(["picture,size,seen", *lines, "", ""]))
    return path


def test_the_summary_says_how_many_are_not_shown_and_why(
    folder: Path, run: Callable[..., Any]
) -> None:
    shown = ["inside/good.png", "alias.png", "inside/../inside/good.png"]
    names = [*shown, "none.png", "../secret.png", "link.png", "script.png"]
    result = run(table(folder, *names), form=FORM)
    assert result.exit_code == 0, result.output
    assert f"not show: 1 {NO_PICTURE}, 1 missing, 2 {OUTSIDE}\n" in result.stdout
    page = (folder / "out" / "review.html").read_text(encoding="utf-8")
    assert page.count('"data:image/') == page.count('"../inside/good.png"') == 3
    assert "secret" not in page


def test_pictures_may_lie_below_another_folder_that_is_named(
    folder: Path, run: Callable[..., Any]
) -> None:
    """Paths may be relative to that folder, or to the table as they were before."""
    names = ["secret.png", "../secret.png", "table/inside/good.png", "../../elsewhere.png"]
    root = "--images-root"
    result = run(table(folder, *names), root, str(folder.parent), form=FORM)
    assert result.exit_code == 0, result.output
    assert f"does not show: 1 {OUTSIDE}\n" in result.stdout
    page = (folder / "out" / "review.html").read_text(encoding="utf-8")
    assert page.count('"../../secret.png"') == 2
    result = run(table(folder), root, str(folder / "nowhere"), form=FORM)
    assert result.exit_code == 1
    assert "--images-root must be the folder of the pictures" in result.stderr


def test_when_thumbnails_take_too_much_room_the_others_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(thumbnail(save(tmp_path / "a b.png")))
    monkeypatch.setattr(page_module, "MOST_BYTES", 2 * size + 1)
    pictures = load_pictures(["a b.png"] * 4, tmp_path, tmp_path / "out")
    assert [bool(picture.thumbnail) for picture in pictures] == [True, True, False, False]
    assert {picture.link for picture in pictures} == {"../a%20b.png"}
    assert pictures[-1].fault.startswith("linked only")


def pixels_of(address: str) -> int:
    content = base64.b64decode(address.removeprefix("data:image/").split(",")[1])
    return max(Image.open(io.BytesIO(content)).size)


def test_the_first_pictures_are_stored_in_full_size_while_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["large.png", "small.png", "none.png", "large.png", "large.png"]
    save(tmp_path / "large.png", size=(3000, 100))
    save(tmp_path / "small.png", size=(90, 10))
    pictures = load_pictures(names, tmp_path, tmp_path, large=4)
    assert [bool(picture.large) for picture in pictures] == [True, False, False, True, False]
    assert (pixels_of(pictures[0].thumbnail), pixels_of(pictures[0].large)) == (320, 1024)
    assert pixels_of(pictures[-1].thumbnail) == 96  # of a similar row
    used = sum(len(picture.thumbnail) for picture in pictures) + len(pictures[0].large)
    monkeypatch.setattr(page_module, "MOST_BYTES", used + 10)
    again = load_pictures(names, tmp_path, tmp_path, large=4)
    assert [bool(picture.large) for picture in again] == [True, False, False, False, False]
    assert all(one.thumbnail == other.thumbnail for one, other in zip(again, pictures, strict=True))
