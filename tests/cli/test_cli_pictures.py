"""`table`, `fit`, `predict`, `compare` and `clean` with pictures as features."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from robustpll import PLLClassifier, load
from robustpll.cli import app

COLOURS = {"ant": (40, 30, 20), "bee": (220, 190, 40), "cow": (230, 230, 235)}
SKIP = ("--skip-bad-rows",)
FORM = ("--votes", "vote ", "--image-input", "file")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words])


def write_photos(folder: Path, rows: int = 60, bad: tuple[str, ...] = ()) -> Path:
    """Noisy pictures of three colours, in several sizes and formats, and what two people saw."""
    random, kinds = np.random.default_rng(0), [*COLOURS]
    (folder / "img").mkdir(parents=True)
    lines = ["file,weather,vote ada,vote bob,gold"]
    for row in range(rows):
        label = row % 3
        size = (40 + row % 5, 30, 3)
        pixels = random.normal(COLOURS[kinds[label]], 25, size=size).clip(0, 255)
        name = f"img/{row}.{('png', 'jpg', 'webp')[row % 3]}"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
        votes = [kinds[label if random.random() < 0.9 else random.integers(3)] for _ in "ab"]
        lines.append(f"{name},{'sun' if row % 2 else 'rain'},{','.join(votes)},{kinds[label]}")
    lines += [f"{name},sun,ant,ant,ant" for name in bad]
    (folder / "photos.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "photos.csv"


def labels_of(path: str) -> list[str]:
    with Path(path).open(encoding="utf-8-sig") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_a_folder_of_photos_becomes_a_model_that_knows_its_column_and_size(tmp_path: Path) -> None:
    photos, new = write_photos(tmp_path / "a"), write_photos(tmp_path / "b", rows=15)
    result = run("table", str(photos), *FORM, "--truth", "gold")
    assert result.exit_code == 0, result.output
    assert f"{photos}: 60 rows, pictures of 3 x 64 x 64\n" in result.stdout
    assert "pictures are the only features. Not used: 'weather'." in result.stderr
    form = (*FORM, "--image-size", "12x10", "--truth", "gold", "--method", "pl_knn")
    result = run("fit", str(photos), *form, "--held-out", "0.4", "--out", "m.pll")
    assert result.exit_code == 0, result.output
    assert "60 rows, pictures of 3 x 12 x 10, 3 classes" in result.stdout
    assert "Majority + random forest" in result.stdout
    assert load("m.pll").features_.shape == (3, 12, 10)
    result = run("predict", "m.pll", str(new), "--out", "p.csv", "--truth", "gold")
    assert result.exit_code == 0, result.output
    assert "right by the true labels: 100.0% of 15 rows" in result.stdout
    assert labels_of("p.csv") == [*COLOURS] * 5
    text = new.read_text().replace("file,", "photo,", 1)
    new.write_text(text)
    result = run("predict", "m.pll", str(new), "--out", "p.csv")
    assert result.exit_code == 1
    assert "--image-input: there is no column 'file'" in result.stderr
    result = run("predict", "m.pll", str(new), "--out", "p.csv", "--image-input", "photo")
    assert result.exit_code == 0, result.output


def test_compare_and_decisions_take_pictures(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "a")
    result = run("compare", str(photos), *FORM, "--image-size", "8", "--method", "pl_knn")
    assert result.exit_code == 0, result.output
    result = run("clean", str(photos), *FORM, "--method", "pl_knn", "--out", "out")
    assert result.exit_code == 0, result.output
    assert '"columns":["weather","gold"]' in Path("out/review.html").read_text(encoding="utf-8")
    (key,) = re.findall(r'"table": ?"(\w+)"', Path("out/review.html").read_text(encoding="utf-8"))
    line = f"2,exclude,2026-11-15T10:00:00.000Z,{key},exclude"
    Path("d.csv").write_text(f"row,decision,when,table,kind\n{line}\n")
    for command in ("fit", "clean"):
        form = (*FORM, "--method", "pl_knn", "--decisions", "d.csv", "--no-baselines")
        result = run(command, str(photos), *form, "--out", {"fit": "m.pll"}.get(command, "out"))
        assert result.exit_code == 0, result.output
        assert "excluded: 1\n" in result.stdout


def test_bad_pictures_stop_a_command_or_are_left_out(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "a", bad=("words.jpg", "none.png", "../x.png", ""))
    (photos.parent / "words.jpg").write_text("no picture")
    fit = ("fit", str(photos), *FORM, "--method", "pl_knn", "--out", "m.pll", "--no-baselines")
    result = run(*fit)
    assert result.exit_code == 1
    assert f"{photos}: 4 rows do not parse:\n" in result.stderr
    assert "line 62: column 'file': 'words.jpg' is not PNG, JPEG, GIF, WEBP" in result.stderr
    assert "line 63: column 'file': 'none.png' is missing, or is a folder\n" in result.stderr
    assert "line 64: column 'file': '../x.png' is outside the folder: pass the" in result.stderr
    assert "as --images-root\n" in result.stderr
    assert "line 65: column 'file': '' names no picture\n" in result.stderr
    assert "pass --skip-bad-rows to leave them out" in result.stderr
    assert not Path("m.pll").exists()
    result = run(*fit, *SKIP)
    assert result.exit_code == 0, result.output
    assert ": 60 rows, pictures of 3 x 64 x 64" in result.stdout
    result = run("predict", "m.pll", str(photos), "--out", "p.csv")
    assert result.exit_code == 1
    assert "4 rows do not parse: for review" in result.stderr
    assert labels_of("p.csv")[-5:] == ["cow", "", "", "", ""]
    with Path("p.csv").open(encoding="utf-8-sig") as file:
        reasons = [row["reason"] for row in csv.DictReader(file)][-4:]
    assert "'none.png' is missing, or is a folder" in reasons[1]


def test_clean_learns_from_the_pictures_and_shows_them(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "a", bad=("none.png",))
    with photos.open("a") as table:
        table.write("img/0.png,sun,cow,cow,ant\n")  # contradicts the first row
    result = run("clean", str(photos), *FORM, "--method", "pl_knn", "--out", "out", *SKIP)
    assert result.exit_code == 0, result.output
    assert "Majority + random forest" in result.stdout
    page = Path("out/review.html").read_text(encoding="utf-8")
    with Path("out/rows_for_review.csv").open(encoding="utf-8-sig") as file:
        asked = [row["row"] for row in csv.DictReader(file)]
    assert {"2", "63"} <= {*asked}
    assert page.count("data:image/") >= len(asked)
    assert page.count("a/img/0.png") == 2
    with Path("out/table.csv").open(encoding="utf-8-sig") as file:
        rows = [*csv.DictReader(file)]
    assert [row["file"] for row in rows[:2]] == ["img/0.png", "img/1.jpg"]
    right = [row["resolved_label"] == row["gold"] for row in rows]
    assert np.mean(right) > 0.95


def test_pictures_may_lie_in_another_folder(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "a")
    (tmp_path / "t").mkdir()
    table = photos.rename(tmp_path / "t" / "photos.csv")
    fit = ("fit", str(table), *FORM, "--method", "pl_knn", "--out", "m.pll", "--no-baselines")
    result = run(*fit)
    assert result.exit_code == 1
    assert "No row" in result.stderr or "60 rows do not parse" in result.stderr
    root = ("--images-root", str(tmp_path / "a"))
    result = run(*fit, *root)
    assert result.exit_code == 0, result.output
    result = run("predict", "m.pll", str(table), "--out", "p.csv", *root)
    assert result.exit_code == 0, result.output


def test_models_of_arrays_predict_files_and_models_of_columns_do_not(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "a", rows=6)
    pictures = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), dtype=np.uint8)
    PLLClassifier("pl_knn").fit(pictures, [*"ababab"]).save("array.pll")
    line = ("predict", "array.pll", str(photos), "--out", "p.csv")
    result = run(*line)
    assert result.exit_code == 1
    assert "the model takes rows of shape (3, 9, 9)" in result.stderr
    result = run(*line, "--image-input", "file")
    assert result.exit_code == 0, result.output
    PLLClassifier("pl_knn").fit(pictures[:, 0, 0], [*"ababab"]).save("flat.pll")
    result = run("predict", "flat.pll", str(photos), "--out", "p.csv", "--image-input", "file")
    assert result.exit_code == 1
    assert "was fitted without names of columns" in result.stderr
    lines = ["weight,seen", *(f"{row}.5,{'ab'[row % 2]}" for row in range(40))]
    Path("t.csv").write_text("\n".join(lines))
    fit = ("fit", "t.csv", "--candidates", "seen", "--out", "c.pll", "--method", "pl_knn")
    assert run(*fit, "--no-baselines").exit_code == 0
    result = run("predict", "c.pll", "t.csv", "--out", "p2.csv", "--image-input", "weight")
    assert result.exit_code == 1
    assert "--image-input 'weight': the model takes rows of shape (1,)" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--image-size", "big"), "--image-size 'big': it must be a side such as 64"),
        (("--image-input", "fil"), "--image-input: there is no column 'fil'. There is 'file'"),
        (("--images-root", "none"), "--images-root 'none': there is no such folder"),
        (("--categories", "weather"), "pass no --categories"),
    ],
)
def test_odd_options_are_explained(tmp_path: Path, options: Any, message: str) -> None:
    result = run("table", str(write_photos(tmp_path / "a", rows=6)), *FORM, *options)
    assert result.exit_code == 1
    assert message in result.stderr
