"""A fitted classifier as one file: what comes back, and what no file can do."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from robustpll import InputError, ModelFileError, PLLClassifier, RobustPLLClassifier, load
from robustpll.methods import Proden, RobustPll, RobustPllEns
from robustpll.methods.classical import ClassicalMethod
from robustpll.methods.ipal import Ipal
from robustpll.methods.pl_knn import PlKnn

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
PICTURES = RNG.random((30, 8, 8))
LABELS = np.arange(30) % 3
WORDS = np.array(["ant", "bee", "cow"])[LABELS]
TABLE = pd.DataFrame(
    {
        "number": X[:, 0],
        "gaps": np.where(LABELS == 0, np.nan, X[:, 1]),
        "word": np.where(np.arange(30) == 3, None, WORDS),
        "truth": LABELS == 2,
    }
)


def small_network(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), k))


def other_network(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 5), nn.Linear(5, k))


def quick(**params: Any) -> RobustPLLClassifier:
    return RobustPLLClassifier(**({"epochs": 3, "random_state": 0} | params))


def check_same(model: Any, again: Any, rows: Any) -> None:
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    assert again.features_ == model.features_
    assert again.fitted_.method == model.fitted_.method
    np.testing.assert_array_equal(again.history_["loss"], model.history_["loss"])


# Round trips


@pytest.mark.parametrize(
    ("model", "rows", "y"),
    [
        (quick(), X, LABELS),
        (quick(kl_ceiling=0.5, anneal="from-zero"), TABLE, WORDS),
        (quick(), TABLE.set_axis(range(4), axis=1), WORDS),
        (quick(network="lenet"), PICTURES, WORDS),
        (quick(network="resnet", epochs=2), PICTURES[:, None], WORDS),
        (quick(members=2, kl_ceiling=(0.5, 2.0)), X, LABELS),
        (PLLClassifier("proden", random_state=0).set_params(method__epochs=2), X, LABELS == 1),
        (PLLClassifier(RobustPllEns(epochs=2, network="lenet"), random_state=0), PICTURES, WORDS),
        (PLLClassifier(Proden(epochs=2), class_weight="balanced"), X, LABELS + 0.0),
        (quick(epochs=np.int64(2), kl_ceiling=np.float32(0.5)), X, LABELS.astype(np.uint8)),
        (quick(class_weight={0: 2.0}, random_state=np.random.RandomState(0)), X, LABELS),
    ],
    ids=[
        *("array", "table", "numbered columns", "lenet", "resnet", "members", "name and bool"),
        *("ensemble", "method object", "numpy settings", "what is not saved"),
    ],
)
def test_a_loaded_model_predicts_bit_by_bit_the_same(
    model: Any, rows: Any, y: np.ndarray, tmp_path: Path
) -> None:
    model.fit(rows, y).save(tmp_path / "model.pll")
    again = load(str(tmp_path / "model.pll"))
    assert type(again) is type(model)
    check_same(model, again, rows)
    again.save(tmp_path / "again.pll")
    check_same(model, load(tmp_path / "again.pll"), rows)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["again.pll", "model.pll"]


def test_a_loaded_model_checks_its_input_and_can_be_trained_again(tmp_path: Path) -> None:
    quick(batch_size=16).fit(TABLE, WORDS).save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll", device="cpu")
    assert (again.n_features_in_, list(again.feature_names_in_)) == (4, list(TABLE.columns))
    assert (again.epochs, again.batch_size, again.random_state) == (3, 16, 0)
    with pytest.raises(ValueError, match="order"):
        again.predict(TABLE[TABLE.columns[::-1]])
    again.fit(X, LABELS)
    assert again.label_weights_.shape == (30, 3)


def test_a_network_of_ones_own_is_passed_again(tmp_path: Path) -> None:
    path = tmp_path / "model.pll"
    model = quick(network=small_network).fit(X, LABELS)
    model.save(path)
    with pytest.raises(InputError, match=r"load\(path, network="):
        load(path)
    check_same(model, load(path, network=small_network), X)
    with pytest.raises(ModelFileError, match="tensor"):
        load(path, network=other_network)


def test_a_network_is_refused_where_the_file_names_its_own(small: Path) -> None:
    with pytest.raises(InputError, match="network='lenet'"):
        load(small, network=small_network)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_the_callers_error(small: Path) -> None:
    with pytest.raises(InputError, match="no CUDA device"):
        load(small, device="cuda")


def test_a_model_of_version_0_1_0_is_read() -> None:
    expected = json.loads((REFERENCE / "model-0.1.0.json").read_text())
    model = load(REFERENCE / "model-0.1.0.pll", device="cpu")
    assert model.classes_.tolist() == expected["classes"]
    opinion = model.predict_opinion(np.array(expected["rows"]))
    np.testing.assert_allclose(opinion.probability, expected["predict_proba"], atol=1e-5)
    np.testing.assert_allclose(opinion.uncertainty, expected["uncertainty"], atol=1e-5)


# Files that are something else, or not whole


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("write", [torch.save, lambda bomb, path: path.write_bytes(bomb)])
def test_a_pickle_is_refused_and_never_run(write: Callable[..., Any], tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.pll"
    bomb = Bomb(marker)
    write(bomb if write is torch.save else pickle.dumps(bomb), path)
    with pytest.raises(ModelFileError, match=r"model\.pll is not a model file"):
        load(path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(bomb))
    assert marker.exists()  # the bomb is live


@pytest.mark.parametrize("content", [b"", b"\0", b"Dear model,\n" * 99, b"\xff" * 99, b"\0" * 99])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"note\.txt is not a model file"):
        load(tmp_path / "note.txt")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=tmp_path.name):
        load(tmp_path)
    with pytest.raises(ModelFileError, match=r"There is no file .*gone\.pll"):
        load(tmp_path / "gone.pll")


@pytest.fixture(scope="module")
def whole() -> bytes:
    """A small model file."""
    return (REFERENCE / "model-0.1.0.pll").read_bytes()


@pytest.fixture
def small(whole: bytes, tmp_path: Path) -> Path:
    (tmp_path / "small.pll").write_bytes(whole)
    return tmp_path / "small.pll"


def test_every_truncated_file_is_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.pll"
    header = 8 + int.from_bytes(whole[:8], "little")
    ends = {*range(0, header, header // 15), *range(header, len(whole), len(whole) // 25)}
    for end in sorted(ends | {8, header - 1, len(whole) - 1}):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError, match=r"cut\.pll"):
            load(path)
    path.write_bytes(whole + b"more")
    with pytest.raises(ModelFileError, match=r"cut\.pll"):
        load(path)


# Descriptions that lie


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], Any]) -> Path:
    """The file with another description or other tensors."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        about = json.loads(opened.metadata()["robustpll"])
    tensors = load_file(path)
    change(about, tensors)
    save_file(tensors, path, {"robustpll": json.dumps(about)})
    return path


def at(*keys: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    """A change of one entry of the description."""

    def change(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        inner: Any = about
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def many_members(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Fewer than there are numbers in the file, and with a seed for each."""
    about["method"]["fields"]["members"] = 5000
    about["seeds"] = [0] * 5000


FIELDS = ("method", "fields")
LIES = {
    "other format": at("format", value=3),
    "no format": lambda about, _: about.pop("format"),
    "unknown method": at("method", "name", value="foo"),
    "method no string": at("method", "name", value=["proden"]),
    "other method": at("method", "name", value="proden"),
    "unknown estimator": at("estimator", value="Foo"),
    "unknown parameter": at("params", "foo", value=1),
    "unknown field": at(*FIELDS, "foo", value=1),
    "epochs 0": at(*FIELDS, "epochs", value=0),
    "bad evidence": at(*FIELDS, "evidence", value="selu"),
    "bad ceiling": at(*FIELDS, "kl_ceiling", value=[1, 2]),
    "ceiling of dicts": at(*FIELDS, "kl_ceiling", value={}),
    "unknown network": at(*FIELDS, "network", value="cnn"),
    "other network": at(*FIELDS, "network", value="mlp"),
    "two members": at(*FIELDS, "members", value=2),
    "huge members": at(*FIELDS, "members", value=10**15),
    "endless members": at(*FIELDS, "members", value=10**30),
    "many members": many_members,
    "fewer seeds": at("seeds", value=[]),
    "fewer classes": lambda about, _: about["classes"]["names"].pop(),
    "one class": at("classes", "names", value=["zero"]),
    "classes twice": at("classes", "names", value=["zero"] * 10),
    "nested classes": at("classes", "names", value=[["zero"]] * 10),
    "ragged classes": at("classes", "names", value=["zero", ["one"]] * 5),
    "classes of words as numbers": at("classes", "type", value="i"),
    "classes of objects": at("classes", "type", value="O"),
    "many classes": at("classes", "names", value=[str(at) for at in range(10_000)]),
    "wide": at("features", "shape", value=[8, 9]),
    "huge shape": at("features", "shape", value=[10**9, 10**9]),
    "overflowing shape": at("features", "shape", value=[2**32, 2**32]),
    "overflowing shape of nothing": lambda about, _: about["features"].update(
        shape=[2**32, 2**32], shift=[], scale=[]
    ),
    "endless shape": at("features", "shape", value=[float("inf"), 8]),
    "negative shape": at("features", "shape", value=[-8, -8]),
    "empty shape": lambda about, _: about["features"].update(shape=[0], shift=[], scale=[]),
    "short shift": at("features", "shift", value=[0.0]),
    "endless width": at("n_features_in", value=float("inf")),
    "features no dict": at("features", value=[]),
    "history no dict": at("history", value=3),
    "params no dict": at("params", value=[]),
    "no tensors": lambda _, tensors: tensors.clear(),
    "fewer tensors": lambda _, tensors: tensors.popitem(),
    "more tensors": lambda _, tensors: tensors.update(more=torch.zeros(3)),
    "tensor of another shape": lambda _, t: t.update(
        {name: value[:1] for name, value in t.items() if value.ndim > 1}
    ),
    "transposed": lambda _, t: t.update({n: v.mT.contiguous() for n, v in t.items() if v.ndim > 1}),
    "half precision": lambda _, t: t.update({name: value.half() for name, value in t.items()}),
    "integers": lambda _, t: t.update({name: value.int() for name, value in t.items()}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_description_that_lies_is_refused_at_once(lie: str, small: Path) -> None:
    path = changed(small, LIES[lie])
    message = r"format 3.*robustpll '0\.1" if lie == "other format" else r"small\.pll"
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_an_unchanged_description_is_no_lie(small: Path) -> None:
    assert len(load(changed(small, lambda about, tensors: None)).classes_) == 10


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, {}, {"other": "1"}, {"robustpll": ""}, {"robustpll": "{"}, {"robustpll": "[]"}),
        *({"robustpll": "null"}, {"robustpll": "{}"}, {"robustpll": "[" * 100_000}),
    ],
    ids=["none", "empty", "other", "no text", "cut", "list", "null", "no format", "deep"],
)
def test_tensors_without_a_description_are_refused(metadata: Any, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "bare.pll", metadata)
    with pytest.raises(ModelFileError, match=r"bare\.pll holds tensors, but no description"):
        load(tmp_path / "bare.pll")


# Methods without networks


@pytest.fixture(params=[PlKnn(neighbours=3, undecided="all"), Ipal(alpha=0.9)], ids=["knn", "ipal"])
def classical(request: pytest.FixtureRequest) -> ClassicalMethod:
    method: ClassicalMethod = request.param
    return method


@pytest.mark.parametrize(("rows", "y"), [(TABLE, WORDS), (PICTURES, WORDS)], ids=["table", "image"])
def test_a_loaded_classical_model_predicts_bit_by_bit_the_same(
    classical: ClassicalMethod, rows: Any, y: np.ndarray, tmp_path: Path
) -> None:
    model = PLLClassifier(classical).fit(rows, y)
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll")
    check_same(model, again, rows)
    assert again.method == classical
    again.save(tmp_path / "again.pll")
    assert (tmp_path / "again.pll").read_bytes() == (tmp_path / "model.pll").read_bytes()
    again.fit(X, LABELS)


def test_the_rows_of_a_classical_model_are_kept_in_float32(
    classical: ClassicalMethod, tmp_path: Path
) -> None:
    wide = np.random.default_rng(0).random((200, 500))
    PLLClassifier(classical).fit(wide, np.arange(200) % 2).save(tmp_path / "model.pll")
    assert load_file(tmp_path / "model.pll")["rows"].dtype == torch.float32
    # once to predict by, and once as the rows that others are told from
    assert 8 * wide.size < (tmp_path / "model.pll").stat().st_size < 9 * wide.size
    assert load(tmp_path / "model.pll").fitted_.learned[0]["rows"].dtype == torch.float64


def cut(tensors: dict[str, Tensor], name: str, to: tuple[slice, ...]) -> None:
    tensors[name] = tensors[name][to].contiguous()


def second(tensors: dict[str, Tensor]) -> str:
    """The name of the labels or candidates."""
    return min(tensors.keys() - {"rows"})


CLASSICAL_LIES = {
    "unknown method": at("method", "name", value="foo"),
    "a network's method": at("method", "name", value="proden"),
    "unknown field": at(*FIELDS, "foo", value=1),
    "no neighbours": at(*FIELDS, "neighbours", value=0),
    "estimator of networks": at("estimator", value="RobustPLLClassifier"),
    "more classes": lambda about, _: about["classes"]["names"].append(3),
    "fewer classes": lambda about, _: about["classes"]["names"].pop(),
    "many classes": at("classes", "names", value=list(range(100_000))),
    "wide": at("features", "shape", value=[5]),
    "wide with scales": lambda about, _: about["features"].update(
        shape=[5], shift=[0.0] * 5, scale=[1.0] * 5
    ),
    "huge shape": at("features", "shape", value=[10**9, 10**9]),
    "overflowing shape of nothing": lambda about, _: about["features"].update(
        shape=[2**32, 2**32], shift=[], scale=[]
    ),
    "negative shape": at("features", "shape", value=[-2, -2]),
    "no shape": lambda about, _: about["features"].update(shape=[], shift=[], scale=[]),
    "no tensors": lambda _, tensors: tensors.clear(),
    "fewer tensors": lambda _, tensors: tensors.popitem(),
    "more tensors": lambda _, tensors: tensors.update(more=torch.zeros(3)),
    "fewer rows than labels": lambda _, t: cut(t, "rows", (slice(7),)),
    "fewer labels than rows": lambda _, t: cut(t, second(t), (slice(7),)),
    "fewer features": lambda _, t: cut(t, "rows", (slice(None), slice(3))),
    "fewer columns of labels": lambda _, t: cut(t, second(t), (slice(None), slice(2))),
    "no rows": lambda _, t: [cut(t, name, (slice(0),)) for name in list(t)],
    "flat": lambda _, t: t.update(rows=t["rows"].flatten()),
    "half precision": lambda _, t: t.update(rows=t["rows"].half()),
    "rows of integers": lambda _, t: t.update(rows=t["rows"].long()),
    "labels of integers": lambda _, t: t.update({second(t): t[second(t)].long()}),
    "not a number": lambda _, t: t["rows"].fill_(torch.nan),
    "infinite": lambda _, t: t["rows"][0].fill_(torch.inf),
}


def test_a_description_that_lies_about_a_classical_model_is_refused(
    classical: ClassicalMethod, tmp_path: Path
) -> None:
    path = tmp_path / "small.pll"
    PLLClassifier(classical).fit(X, LABELS).save(path)
    whole = path.read_bytes()
    assert load(changed(path, lambda about, tensors: None)).method == classical
    for lie in CLASSICAL_LIES.values():
        path.write_bytes(whole)
        changed(path, lie)
        with pytest.raises(ModelFileError, match=r"small\.pll"):
            load(path)
    path.write_bytes(whole)
    with pytest.raises(InputError, match="network was passed, but the model in the file has none"):
        load(path, network=small_network)


# Saving


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    for model in (quick(), PLLClassifier(RobustPll())):
        with pytest.raises(NotFittedError):
            model.save(tmp_path / "model.pll")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    before = small.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        quick().fit(X, LABELS).save(small)
    assert small.read_bytes() == before
    assert list(small.parent.iterdir()) == [small]


def test_a_save_over_a_folder_or_into_none_fails_cleanly(tmp_path: Path) -> None:
    model = quick().fit(X, LABELS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        model.save(tmp_path / "folder")
    with pytest.raises(InputError, match=r"no folder .*gone"):
        model.save(tmp_path / "gone" / "model.pll")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_save_replaces_the_file_under_the_users_permissions(small: Path) -> None:
    before = os.umask(0o027)
    try:
        quick().fit(X, LABELS).save(small)
    finally:
        os.umask(before)
    assert small.stat().st_mode & 0o777 == 0o640
    assert load(small).classes_.tolist() == [0, 1, 2]


def test_a_method_of_ones_own_is_not_saved_as_another(tmp_path: Path) -> None:
    class Mine(RobustPll):
        """Would be read as RobustPll, whose name it inherits."""

    model = PLLClassifier(Mine(epochs=1)).fit(X, LABELS)
    with pytest.raises(InputError, match="Mine is a method of your own"):
        model.save(tmp_path / "mine.pll")
    assert not list(tmp_path.iterdir())


def test_class_weights_are_kept_for_a_later_fit(tmp_path: Path) -> None:
    weights = {name: 1.0 + at for at, name in enumerate(np.unique(LABELS).tolist())}
    model = quick(class_weight=weights).fit(X, LABELS)
    model.save(tmp_path / "model.pll")
    assert load(tmp_path / "model.pll").class_weight == weights
