"""Draws docs/review.png: the review page of digits that five simulated annotators voted on.

    python benchmarks/review_picture.py [FOLDER]

The folder keeps the table, its pictures and what `robustpll clean` makes of them. Needs Chromium.
"""

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

DOCS = Path(__file__).parent.parent / "docs"
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ANNOTATORS = {
    "ada": 0.95,
    "bob": 0.85,
    "eve": 0.8,
    "kim": 0.7,
    "zoe": 0.5,
}  # share of right answers
ANSWERED = 0.7


def write_table(folder: Path, rows: int = 1000) -> Path:
    """Digits as pictures and features, and answers of people who mistake alike digits."""
    random = np.random.default_rng(0)
    pixels, labels = load_digits(return_X_y=True)
    means = np.stack([pixels[labels == label].mean(0) for label in range(10)])
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    columns = [f"pixel {number}" for number in range(64)]
    path = folder / "digits.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["picture", *columns, *(f"vote {name}" for name in ANNOTATORS), "truth"])
        for row in range(rows):
            grey = 255 - (pixels[row].reshape(8, 8) * 15.9).astype(np.uint8)
            picture = Image.fromarray(grey).resize((96, 96), Image.Resampling.BICUBIC)
            picture.save(folder / "pictures" / f"{row}.png")
            apart = np.square(means - pixels[row]).sum(-1)
            alike = np.exp(-(apart - apart.min()) / 200)
            alike[labels[row]] = 0
            answers = [
                ""
                if random.random() > ANSWERED
                else NAMES[labels[row]]
                if random.random() < skill
                else NAMES[random.choice(10, p=alike / alike.sum())]
                for skill in ANNOTATORS.values()
            ]
            if not any(answers):
                answers[0] = NAMES[labels[row]]
            cells = [f"{number:g}" for number in pixels[row]]
            writer.writerow([f"pictures/{row}.png", *cells, *answers, NAMES[labels[row]]])
    return path


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    table = write_table(folder)
    options = ["--votes", "vote ", "--truth", "truth", "--images", "picture", "--epochs", "50"]
    options += ["--wrong", "0.002"]
    command = [sys.executable, "-c", "from robustpll.cli import app; app()", "clean", str(table)]
    subprocess.run([*command, *options, "--out", str(folder / "out")], check=True)
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme, out in (("light", DOCS / "review.png"), ("dark", folder / "review-dark.png")):
            page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme=scheme)
            page.goto((folder / "out" / "review.html").as_uri())
            for key in "11s2":
                page.keyboard.press(key)
            page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main()
