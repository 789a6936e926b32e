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
from robustpll.clean.page import MISSING, NO_PICTURE, OUTSIDE, load_pictures, thumbnail

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def damaged_avif() -> bytes:
    """Its head is whole; decoding it fails."""
    content = io.BytesIO()
    Image.new("RGB", (40, 20), "red").save(content, "AVIF")
    whole = content.getvalue()
    return whole[:-44] + bytes([whole[-44] ^ 255]) + whole[-43:]


def damaged_blp() -> bytes:
    """Of an encoding that there is not."""
    head = struct.pack("<4sibbbbII", b"BLP2", 1, 9, 8, 0, 0, 4, 4)
    return head + struct.pack("<32I", *[148] * 16, *[16] * 16) + bytes(2000)


HOSTILE = {
    "script.png": EPS,
    "damaged.avif": damaged_avif(),
    "damaged.blp": damaged_blp(),
    "cut.gif": b"GIF89a\x10\x00\x10\x00\x80",
    "cut.tif": b"II*\x00\x08\x00\x00\x00\xff\xff",
    "empty.jpg": b"",
    "words.webp": b"no picture",
}


def small(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 20), "red").save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a good picture, one outside, and links of all kinds."""
    folder = tmp_path / "table"
    small(folder / "inside" / "good.png")
    small(tmp_path / "secret.png")
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

    def start(*arguments: object, **_: object) -> None:
        started.append(arguments)

    monkeypatch.setattr(subprocess, "check_call", start)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    assert thumbnail(folder / "script.png") == ""
    assert started == []


def test_what_is_no_picture_is_a_placeholder(folder: Path) -> None:
    assert load_pictures([*HOSTILE], folder, folder) == [("", name, NO_PICTURE) for name in HOSTILE]


def test_whatever_pillow_raises_is_a_placeholder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("encoder")

    monkeypatch.setattr(Image.Image, "save", fail)
    assert load_pictures(["inside/good.png"], folder, folder)[0].fault == NO_PICTURE


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_these_formats_are_shown(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (40, 20), "red").save(tmp_path / "picture", kind)
    (picture,) = load_pictures(["picture"], tmp_path, tmp_path)
    assert picture.thumbnail.startswith("data:image/")
    assert picture.fault == ""


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_a_thumbnail_has_at_most_96_pixels_a_side_in_any_mode(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("large.tif" if mode in ("CMYK", "I;16") else "large.png")
    Image.new(mode, (300, 500)).save(path)
    content = base64.b64decode(thumbnail(path).split(",")[1])
    assert max(Image.open(io.BytesIO(content)).size) == 96


def test_a_path_that_leads_out_gets_neither_thumbnail_nor_link(folder: Path) -> None:
    names = ["../secret.png", "link.png", "up/secret.png", "/", "..", f"{folder.parent}/secret.png"]
    assert load_pictures(names, folder, folder) == [("", "", OUTSIDE)] * 6


def test_links_and_dots_within_the_folder_are_followed(folder: Path) -> None:
    pictures = load_pictures(["alias.png", "inside/../inside/good.png"], folder, folder / "out")
    assert [picture.link for picture in pictures] == ["../inside/good.png"] * 2
    assert all(picture.thumbnail for picture in pictures)


def test_what_is_not_there_is_missing_and_a_pipe_or_folder_blocks_nothing(folder: Path) -> None:
    names = ["none.png", "circle.png", "a\0b", "a" * 5000]
    assert load_pictures(names, folder, folder) == [("", "", MISSING)] * 4
    assert load_pictures(["pipe.png", "inside"], folder, folder) == [("", "", NO_PICTURE)] * 2
    assert load_pictures([""], folder, folder) == [("", "", "")]


def test_when_thumbnails_take_too_much_room_the_others_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path / "a b.png")
    first = load_pictures(["a b.png"], tmp_path, tmp_path)[0]
    monkeypatch.setattr(page_module, "MOST_BYTES", 2 * len(first.thumbnail) + 1)
    pictures = load_pictures(["a b.png"] * 4, tmp_path, tmp_path / "out")
    assert [bool(picture.thumbnail) for picture in pictures] == [True, True, False, False]
    assert {picture.link for picture in pictures} == {"../a%20b.png"}
    assert pictures[-1].fault.startswith("linked only")


def table(folder: Path, names: list[str]) -> Path:
    """Rows of two classes, all in doubt; the paths come first."""
    names = [*names, *[""] * (30 - len(names))]
    lines = [f"{name},{row % 2}.{row},ant|bee" for row, name in enumerate(names)]
    path = folder / "pets.csv"
    path.write_text("\n".join(["picture,size,seen", *lines, "", ""]))
    return path


FORM = ("--candidates", "seen", "--images", "picture")


def test_the_summary_says_how_many_are_not_shown_and_why(
    folder: Path, run: Callable[..., Any]
) -> None:
    names = ["inside/good.png", "none.png", "../secret.png", "link.png", "script.png"]
    result = run(table(folder, names), *FORM)
    assert result.exit_code == 0, result.output
    assert (
        "pictures that the page does not show: 4 of 30 (1 damaged, too large, or not PNG, JPEG, "
        "GIF, WEBP, BMP or TIFF, 1 missing, 2 outside the folder)" in result.stdout
    )
    assert "pass --images-root FOLDER" in result.stdout
    page = (folder / "out" / "review.html").read_text(encoding="utf-8")
    assert page.count('"data:image/') == 1
    assert "../inside/good.png" in page
    assert "secret" not in page


def test_pictures_may_lie_below_another_folder_that_is_named(
    folder: Path, run: Callable[..., Any]
) -> None:
    """Paths may be relative to that folder, or to the table as they were before."""
    names = ["secret.png", "../secret.png", "table/inside/good.png", "../../elsewhere.png"]
    result = run(table(folder, names), *FORM, "--images-root", str(folder.parent))
    assert result.exit_code == 0, result.output
    assert "does not show: 1 of 30 (1 outside the folder)" in result.stdout
    page = (folder / "out" / "review.html").read_text(encoding="utf-8")
    assert page.count('"../../secret.png"') == 2
    result = run(table(folder, []), *FORM, "--images-root", str(folder / "nowhere"))
    assert result.exit_code == 1
    assert "--images-root must be the folder of the pictures" in result.stderr
