"""Pictures in files: what they become, and what is said of those that cannot be read."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from robustpll import InputError, RobustPLLClassifier, read_table
from robustpll.tables import images
from robustpll.tables.images import read_images, size_of

RED = (200, 30, 10)


def save(path: Path, picture: Any = RED, size: tuple[int, int] = (20, 10), **options: Any) -> str:
    """Write an array, or a picture of one colour; return its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_colour = isinstance(picture, tuple | int | str)
    mode = {tuple: "RGB", int: "L"}.get(type(picture), "RGB")
    image = Image.new(mode, size, picture) if is_colour else Image.fromarray(picture)
    image.save(path, **options)
    return path.name


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_pictures_of_one_small_size_keep_every_pixel(tmp_path: Path) -> None:
    pictures = noise(5, 24, 32, 3)
    names = [save(tmp_path / f"{n}.png", picture) for n, picture in enumerate(pictures)]
    read = read_images(names, folder=tmp_path)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, pictures.transpose(0, 3, 1, 2))
    grey = [save(tmp_path / f"{n}.bmp", picture[..., 0]) for n, picture in enumerate(pictures)]
    np.testing.assert_array_equal(read_images(grey, folder=tmp_path)[:, 0], pictures[..., 0])
    mixed = read_images([names[0], grey[0]], folder=tmp_path)
    np.testing.assert_array_equal(mixed[1], np.stack([pictures[0, ..., 0]] * 3))


def test_the_size_is_theirs_if_small_else_64_or_as_requested(tmp_path: Path) -> None:
    small, large = save(tmp_path / "a.png"), save(tmp_path / "b.jpg", size=(300, 200))
    shapes = {"a": [small], "ab": [small, large], "b": [large]}
    read = {key: read_images(names, folder=tmp_path).shape for key, names in shapes.items()}
    assert read == {"a": (1, 3, 10, 20), "ab": (2, 3, 64, 64), "b": (1, 3, 64, 64)}
    for size, shape in ((16, (16, 16)), ("16", (16, 16)), ((8, 9), (8, 9)), ("8x9", (8, 9))):
        picture = read_images([large], size, folder=tmp_path)
        assert picture.shape == (1, 3, *shape)
        assert np.abs(picture[0].mean((1, 2)) - RED).max() < 3
    for size in ("8x9x3", "x", "", 0, -3, 5000, (3,), 2.5, True):
        with pytest.raises(InputError, match=r"image_size=.* it must be a side such as 64"):
            size_of(size)


def test_pictures_are_turned_upright_before_they_are_resized(tmp_path: Path) -> None:
    picture = np.zeros((20, 40, 3), dtype=np.uint8)
    picture[:, :20] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: left becomes the top
    name = save(tmp_path / "a.jpg", picture, exif=exif)
    read = read_images([name], folder=tmp_path)
    assert read.shape == (1, 3, 40, 20)
    assert read[0, :, :15].min() > 200
    assert read[0, :, 25:].max() < 50


def test_16_bits_palettes_transparency_and_cmyk_become_8_bits(tmp_path: Path) -> None:
    deep = np.array([[0, 256, 40_000, 65_535]], dtype=np.uint16)
    name = save(tmp_path / "deep.png", deep)
    assert read_images([name], folder=tmp_path)[:, 0].tolist() == [[[0, 1, 156, 255]]]
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, *RED])
    palette.putpixel((0, 0), 0)
    palette.save(tmp_path / "palette.png", transparency=0)
    read = read_images(["palette.png"], folder=tmp_path)[0]
    assert read[:, 0, 0].tolist() == [255] * 3  # white, where nothing is
    assert read[:, 1, 1].tolist() == [*RED]
    half = np.zeros((4, 4, 2), dtype=np.uint8)
    half[..., 1] = 128
    Image.fromarray(half).save(tmp_path / "half.png")
    assert read_images(["half.png"], folder=tmp_path)[:, 0].tolist() == [[[127] * 4] * 4]
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "print.jpg")
    assert read_images(["print.jpg"], folder=tmp_path)[0, :, 0, 0].tolist() == [255, 0, 0]


def jpeg(size: tuple[int, int] = (200, 200)) -> bytes:
    content = io.BytesIO()
    Image.fromarray(noise(*size, 3)).save(content, "JPEG")
    return content.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three good pictures and many bad ones, and a table of them with votes."""
    folder = tmp_path / "table"
    for name in ("good/a.png", "good/b.jpg", "good/c.gif"):
        save(folder / name)
    (folder / "words.jpg").write_text("no picture")
    (folder / "cut.jpg").write_bytes(jpeg()[:5000])
    (folder / "empty.png").write_bytes(b"")
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(folder / "float.tif")
    Image.new("1", (20_000, 20_000)).save(folder / "bomb.png")
    save(tmp_path / "outside.png")
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "many").mkdir()
    lines = ["file,size,vote a,vote b", *(f"{n},1,ant,bee" for n in ("good/a.png", "good/b.jpg"))]
    lines += [f"{name},2,ant,bee" for name in REASONS]
    (folder / "photos.csv").write_text("\n".join([*lines, "good/c.gif,3,bee,bee"]) + "\n")
    return folder / "photos.csv"


REASONS = {
    "words.jpg": "is not PNG, JPEG, GIF, WEBP, BMP or TIFF",
    "empty.png": "is not PNG, JPEG, GIF, WEBP, BMP or TIFF",
    "cut.jpg": "is damaged (image file is truncated",
    "float.tif": "has pixels in floating point: convert it to 8 bits",
    "bomb.png": "has more than 89,478,485 pixels: make it smaller",
    "none.png": "is missing, or is a folder",
    "many": "is missing, or is a folder",
    "": "names no picture",
    "../outside.png": "is outside the folder: pass the folder of all pictures",
    "link.png": "is outside the folder",
    "/etc/passwd": "is outside the folder",
}


def test_each_bad_picture_is_a_bad_row_with_its_reason(photos: Path) -> None:
    options: Any = {"votes": "vote ", "image_input": "file"}
    with pytest.raises(InputError, match=rf"{len(REASONS)} rows do not parse \(line 4: column"):
        read_table(photos, **options)
    table = read_table(photos, **options, on_bad_rows="skip")
    assert table.rows.tolist() == [2, 3, 4 + len(REASONS)]
    assert table.X is table.pictures
    assert table.X.shape == (3, 3, 64, 64)
    assert np.abs(table.X.mean((2, 3)) - RED).max() < 3
    assert [fault.line for fault in table.bad] == [*range(4, 4 + len(REASONS))]
    for fault, (name, reason) in zip(table.bad, REASONS.items(), strict=True):
        assert (fault.column, fault.value) == ("file", name)
        assert fault.reason.startswith(reason)


def test_a_long_or_wide_picture_is_no_bomb(tmp_path: Path) -> None:
    name = save(tmp_path / "wide.jpg", size=(20_000, 100))
    assert read_images([name], folder=tmp_path).shape == (1, 3, 64, 64)


def test_read_images_names_the_first_bad_files_and_their_number(photos: Path) -> None:
    names = ["good/a.png", "words.jpg", "none.png", "cut.jpg", "empty.png"]
    with pytest.raises(InputError) as caught:
        read_images(names, folder=photos.parent)
    assert str(caught.value).startswith(
        "paths: 4 of 5 pictures cannot be read ('words.jpg' is not PNG, JPEG, GIF, WEBP, BMP or "
        "TIFF, or its beginning is damaged, 'none.png' is missing, or is a folder, 'cut.jpg' is "
        "damaged (image file is truncated"
    )


@pytest.mark.parametrize("kind", [str, Path])
def test_one_path_is_no_list_of_paths(kind: Any, photos: Path) -> None:
    with pytest.raises(InputError, match=r"paths must be a list of paths; .*Pass \['good/a.png'\]"):
        read_images(kind("good/a.png"), folder=photos.parent)


def test_pictures_that_do_not_fit_in_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = save(tmp_path / "a.png")
    monkeypatch.setattr(images, "free_memory", lambda: 23_999)
    with pytest.raises(InputError, match=r"1 pictures of 3 x 100 x 40 bytes take .* smaller"):
        read_images([name], (100, 40), folder=tmp_path)
    assert read_images([name], (99, 40), folder=tmp_path).shape == (1, 3, 99, 40)


def test_a_second_table_is_read_like_the_first(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / f"{number}.png", 60 * number, size=(30, 30))
    save(tmp_path / "colour.jpg", size=(500, 300))
    first = pd.DataFrame({"file": [f"{n}.png" for n in range(4)], "seen": [*"abab"], "other": 1})
    later = pd.DataFrame({"file": ["colour.jpg"], "more": [2.0]})
    options: Any = {"candidates": "seen", "image_input": "file", "images_root": tmp_path}
    table = read_table(first, **options, image_size=20)
    assert table.X.shape == (4, 1, 20, 20)
    assert table.features.shape == (4, 0)
    assert table.reading.left_out == ("file", "seen", "other")
    again = read_table(later, like=table, images_root=tmp_path)
    assert again.X.shape == (1, 1, 20, 20)
    model = RobustPLLClassifier(learner="network", epochs=1).fit(table.X, table.y)
    assert model.predict(again.X).shape == (1,)


def test_files_may_name_the_rows_of_a_long_table(tmp_path: Path) -> None:
    rows = pd.DataFrame({"file": [save(tmp_path / "a.png"), save(tmp_path / "b.png")]})
    said = pd.DataFrame({"file": ["b.png", "a.png", "b.png"], "who": [*"xxy"], "what": [*"cdc"]})
    columns: Any = {"item": "file", "annotator": "who", "label": "what", "image_input": "file"}
    table = read_table(rows, answers=said, **columns, images_root=tmp_path)
    assert table.X.shape == (2, 3, 10, 20)
    assert table.annotators == ("x", "y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_input": "none"}, r"`image_input`: there is no column 'none'"),
        ({"image_input": "seen"}, r"image_input='seen' must be a column of its own"),
        ({"image_input": "file", "categories": "other"}, "pass no `categories`"),
        ({"image_input": "file", "images_root": "nowhere"}, r"images_root='nowhere': there is no"),
        ({"image_input": "file", "image_size": "big"}, r"image_size='big': it must be"),
    ],
)
def test_odd_options_are_refused(options: Any, message: str) -> None:
    frame = pd.DataFrame({"file": ["a.png", "b.png"], "seen": ["a", "b"], "other": 1})
    with pytest.raises(InputError, match=message):
        read_table(frame, candidates="seen", **options)


def test_integers_of_32_bits_may_hold_bytes(tmp_path: Path) -> None:
    values = np.array([[0, 100], [200, 255]], dtype=np.int32)
    Image.fromarray(values, mode="I").save(tmp_path / "a.tiff")
    assert read_images([tmp_path / "a.tiff"])[:, 0].tolist() == [values.tolist()]


@pytest.mark.parametrize("kind", [np.uint16, np.int32])
@pytest.mark.parametrize("most", [255, 256, 4095])
def test_pictures_of_16_bits_that_would_become_black_are_bad(
    kind: Any, most: int, tmp_path: Path
) -> None:
    values = np.array([[0, 100], [200, most]], dtype=kind)
    Image.fromarray(values).save(tmp_path / "a.tiff")
    if kind == np.int32 and most == 255:
        return
    with pytest.raises(InputError, match=rf"largest number is {most:,} of 65,535: convert it"):
        read_images([tmp_path / "a.tiff"])


def test_if_all_pictures_are_missing_the_folder_is_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame({"file": ["a.png", "b.png"], "seen": ["a", "b"]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(InputError, match=r"Paths start from the table's folder, or from `images_r"):
        read_table(tmp_path / "table.csv", candidates="seen", image_input="file")
    frame["file"] = ["p\\a.png", "p\\b.png"]
    with pytest.raises(InputError, match=r"is missing: write / instead of"):
        read_table(frame, candidates="seen", image_input="file")


def test_options_of_pictures_need_a_column_of_them() -> None:
    with pytest.raises(InputError, match="pass their column as `image_input`"):
        read_table(pd.DataFrame({"a": [1, 2], "y": ["p", "q"]}), candidates="y", image_size=8)
