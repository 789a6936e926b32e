"""Writes the small valid files that fuzzing begins with: `python tests/fuzz/make_corpus.py`."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from robustpll import PLLClassifier
from robustpll.methods import DstPll, PlKnn, PlSvm

CORPUS = Path(__file__).parent / "corpus"
PICTURES = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM", "ICO", "TGA", "DDS", "PCX")


def models() -> None:
    X = pd.DataFrame({"x": np.arange(12.0) % 3, "town": ["Rome", "Bonn", "Rome"] * 4})
    y = [{"ant", "bee"}, {"bee"}, {"cow", "ant"}] * 4
    for method in (PlKnn(neighbours=3), PlSvm(), DstPll()):
        model = PLLClassifier(method, random_state=0).fit(X, y)
        model.notes_ = {"reading": {"missing": ["?"], "delimiter": ";"}}
        model.save(CORPUS / "model" / f"{method.name}.pll")


def tables() -> None:
    frame = pd.DataFrame(
        {
            "x": [0.5, -1.25, 3, 1e-3] * 3,
            "town": ["Rome", "Bonn", None, "Öl, \"neu\""] * 3,
            "by ann": ["ant", "bee", None, "cow"] * 3,
            "by bob": ["ant", "ant", "cow", "cow"] * 3,
        }
    )  # fmt: skip
    folder = CORPUS / "table"
    frame.to_csv(folder / "plain.csv", index=False)
    frame.to_csv(
        folder / "semicolons.csv", index=False, sep=";", decimal=",", lineterminator="\r\n"
    )
    frame.to_csv(folder / "packed.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    frame.to_csv(folder / "utf-16.csv", index=False, encoding="utf-16")
    frame.to_parquet(folder / "plain.parquet", index=False)


def pictures() -> None:
    picture = Image.fromarray(np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3))
    for kind in PICTURES:
        picture.save(CORPUS / "picture" / f"{kind.lower()}.png", kind)
    picture.convert("RGBA").save(CORPUS / "picture" / "alpha.png", "PNG")
    picture.save(
        CORPUS / "picture" / "frames.png", "GIF", save_all=True, append_images=[picture.rotate(90)]
    )
    (CORPUS / "picture" / "postscript.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 12 12\n(x) run showpage\n"
    )


def decisions() -> None:
    lines = ("row,decision,when,table", "2,ant,2026-11-16T09:00:00.000Z,key")
    more = ('3,"b\u2028e\re",2026-11-16T09:00:01+02:00,key', "2,cow,2026-11-16 10:00:00,key")
    folder = CORPUS / "decisions"
    (folder / "page.csv").write_bytes("\n".join((*lines, *more)).encode("utf-8-sig"))
    (folder / "spreadsheet.csv").write_bytes("\r\n".join(lines).encode())


if __name__ == "__main__":
    for write in (models, tables, pictures, decisions):
        write()
