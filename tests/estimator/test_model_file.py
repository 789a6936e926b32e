"""A fitted classifier as one file: what comes back, and what no file can do."""

import copy
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from robustpll import InputError, ModelFileError, PLLClassifier, RobustPLLClassifier, load
from robustpll.engine.augment import Augmentation
from robustpll.estimator.abstention import networks_of
from robustpll.estimator.model_file import KEY, SUM, checksum
from robustpll.methods import (
    METHODS,
    Auto,
    Dirk,
    Ipal,
    Papi,
    Pico,
    PlKnn,
    Proden,
    RobustPll,
    RobustPllEns,
    RobustPllViews,
    Wrapped,
)

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
PICTURES = RNG.random((30, 8, 8))
LABELS = np.arange(30) % 3
MANY_LABELS = np.arange(150) % 3  # enough rows to compare networks with trees
MANY = np.random.default_rng(0).normal(MANY_LABELS[:, None], 1.0, size=(150, 4))
WORDS = np.array(["ant", "bee", "cow"])[LABELS]
TABLE = pd.DataFrame(
    {
        "number": X[:, 0],
        "gaps": np.where(LABELS == 0, np.nan, X[:, 1]),
        "word": np.where(np.arange(30) == 3, None, WORDS),
        "truth": LABELS == 2,
    }
)
Change = Callable[[dict[str, Any], dict[str, Tensor]], Any]


def linear(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), k))


def deeper(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 5), nn.Linear(5, k))


def deeper_rows(rows: Any) -> Any:
    return rows


def quick(epochs: int = 3, **params: Any) -> PLLClassifier:
    """A classifier with networks; `params` are of RobustPll, or of the classifier."""
    outer = {name: params.pop(name) for name in ("class_weight", "random_state") if name in params}
    return PLLClassifier(RobustPll(epochs=epochs, **params), **({"random_state": 0} | outer))


def described(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as opened:
        return dict(json.loads(opened.metadata()[KEY]))


def changed(path: Path, change: Change) -> Path:
    """A copy with another description or other tensors, and without a checksum."""
    about, tensors = described(path), load_file(path)
    change(about, tensors)
    copied = path.with_name("changed.pll")
    save_file(tensors, copied, {KEY: json.dumps(about)})
    return copied


def load_and_try(path: Path, **arguments: Any) -> Any:
    """A model that answers with finite numbers, or None if the file or its rows are refused."""
    try:
        model = load(path, **arguments)
        features = model.features_
        with np.errstate(over="ignore"):
            rows = np.array([0.0, 0.3, 1.0, 9.0])[:, None] * features.scale + features.shift
        scaled = features.rows(rows.reshape(-1, *features.shape), model.fitted_.device)
        opinion, distance = model._opinion(scaled), model._distance(scaled)
    except (ModelFileError, InputError):
        return None
    answers = (opinion.probability, opinion.uncertainty, opinion.entropy, distance)
    assert all(np.isfinite(answer).all() for answer in answers)
    return [*answers, model.classes_]


def check_same(model: Any, again: Any, rows: Any) -> None:
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    assert again.features_ == model.features_
    assert again.fitted_.method == model.fitted_.method
    assert again.is_calibrated == model.is_calibrated
    np.testing.assert_array_equal(again.history_["loss"], model.history_["loss"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """A file of each kind, and the arguments it is loaded with."""
    folder = tmp_path_factory.mktemp("models")
    networks = quick(members=2, class_weight={"ant": 2.0}).fit(TABLE, WORDS)
    with pytest.warns(UserWarning, match="X has training rows"):
        networks.recalibrate(TABLE, WORDS).calibrate_decisions(TABLE, WORDS)
    networks.notes_ = {"reading": {"sheet": None}}
    models: dict[str, Any] = {
        "networks": networks,
        "knn": PLLClassifier(PlKnn(neighbours=3, undecided="all")).fit(X, LABELS),
        "ipal": PLLClassifier(Ipal(alpha=0.9)).fit(X, LABELS),
        "wrapped": PLLClassifier(Wrapped(GaussianNB()), random_state=0).fit(X, LABELS),
        "forest": PLLClassifier(Wrapped("forest", labels="prior"), random_state=0).fit(X, LABELS),
        "default": PLLClassifier(Auto(epochs=5, members=5), random_state=0).fit(MANY, MANY_LABELS),
        "own network": PLLClassifier(Proden(epochs=2, network=linear), random_state=0).fit(
            X, WORDS
        ),
    }
    for kind, model in models.items():
        model.save(folder / f"{kind}.pll")
    arguments = {kind: {"network": linear} if kind == "own network" else {} for kind in models}
    paths = {kind: (folder / f"{kind}.pll", arguments[kind]) for kind in models}
    return paths | {"pictures": (REFERENCE / "model-0.1.0.pll", {})}


KINDS = ("networks", "knn", "own network", "wrapped", "forest", "default")
Saved = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of a small file with a convolutional network, written by version 0.1.0."""
    path = tmp_path / "small.pll"
    path.write_bytes((REFERENCE / "model-0.1.0.pll").read_bytes())
    return path


# Round trips


@pytest.mark.parametrize(
    ("model", "rows", "y"),
    [
        (quick(kl_ceiling=0.5, anneal="from-zero"), TABLE, WORDS),
        (quick(), TABLE.set_axis(range(4), axis=1), WORDS),
        (quick(network="lenet"), PICTURES, WORDS),
        (quick(network="resnet", epochs=1), PICTURES[:, None], WORDS),
        (quick(members=2, kl_ceiling=(0.5, 2.0)), X, LABELS),
        (PLLClassifier("proden", random_state=0).set_params(method__epochs=2), X, LABELS == 1),
        (PLLClassifier(RobustPllEns(epochs=1, network="lenet"), random_state=0), PICTURES, WORDS),
        (PLLClassifier(Proden(epochs=2), class_weight="balanced", random_state=0), X, LABELS + 0.0),
        (quick(epochs=np.int64(2), kl_ceiling=np.float32(0.5)), X, LABELS.astype(np.uint8)),
        (quick(class_weight={0: 2.0}, random_state=np.random.RandomState(0)), X, LABELS),
        (PLLClassifier(PlKnn(neighbours=3, undecided="all")), TABLE, WORDS),
        (PLLClassifier(Ipal(alpha=0.9)), PICTURES, WORDS),
        (PLLClassifier(Wrapped("logistic_regression"), random_state=0), TABLE, WORDS),
        (PLLClassifier(Wrapped("forest"), random_state=0), TABLE, WORDS),
        (PLLClassifier(Wrapped("random_forest", labels="prior"), random_state=0), X, LABELS),
        (RobustPLLClassifier(epochs=2, members=5, random_state=0), MANY, MANY_LABELS),
        (RobustPLLClassifier(epochs=2, scale="quantile", random_state=0), MANY, MANY_LABELS),
        (PLLClassifier(Auto(epochs=2, learner="trees"), random_state=0), MANY, MANY_LABELS),
        (PLLClassifier(Auto(epochs=2, network="lenet"), random_state=0), PICTURES, WORDS),
        (PLLClassifier(Auto(epochs=2, members=2), random_state=0), X[:9], LABELS[:9]),
        (
            RobustPLLClassifier(epochs=1, random_state=0),
            np.tile(PICTURES[:, None], (1, 1, 2, 2)),
            WORDS,
        ),
        (PLLClassifier(Pico(epochs=1, network="convnet"), random_state=0), PICTURES, WORDS),
        (PLLClassifier(Dirk(epochs=1, members=2), random_state=0), PICTURES, WORDS),
        (PLLClassifier(Papi(epochs=1, network="auto"), random_state=0), X, WORDS),
    ],
    ids=[
        *("table", "numbered columns", "lenet", "resnet", "members", "name and bool", "ensemble"),
        *("method object", "numpy settings", "state of random numbers", "knn", "ipal"),
        *("wrapped", "forest", "forest of classes", "default", "quantiles"),
        "default with trees alone",
        *("default with pictures", "default with few rows", "views", "slow copy"),
        *("slow copies", "embedding"),
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


@pytest.mark.parametrize("augment", ["auto", Augmentation(flip=False), None, lambda rows: 1 - rows])
@pytest.mark.parametrize("classifier", [RobustPLLClassifier, RobustPllViews])
def test_a_loaded_model_mirrors_pictures_as_before_and_code_is_not_stored(
    classifier: Any, augment: Any, tmp_path: Path
) -> None:
    model = classifier(epochs=1, augment=augment, network="convnet")
    model = PLLClassifier(model) if isinstance(model, RobustPllViews) else model
    colour = RNG.random((30, 3, 8, 8))
    model.set_params(random_state=0).fit(colour, WORDS).save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll")
    assert again.fitted_.method.augment == (augment if not isfunction(augment) else None)
    np.testing.assert_array_equal(again.predict_proba(colour), model.predict_proba(colour))
    [network, *_] = networks_of(again.fitted_)
    assert network.net.mirrored == (augment == "auto")


def test_a_loaded_model_checks_its_input_and_can_be_trained_again(tmp_path: Path) -> None:
    weights = {"ant": 1.0, "bee": 2.0}
    settings: Any = {"epochs": 3, "batch_size": 16, "members": 5, "random_state": 0}
    model = RobustPLLClassifier(**settings, class_weight=weights).fit(TABLE, WORDS)
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll", device="cpu")
    assert (again.n_features_in_, list(again.feature_names_in_)) == (4, list(TABLE.columns))
    assert settings.items() <= again.get_params().items()
    assert again.class_weight == weights
    with pytest.raises(ValueError, match="order"):
        again.predict(TABLE[TABLE.columns[::-1]])
    assert again.fit(X, WORDS).label_weights_.shape == (30, 3)


@pytest.mark.parametrize("method", [PlKnn(neighbours=3), Ipal()], ids=["knn", "ipal"])
def test_rows_of_a_classical_model_are_stored_in_float32(method: Any, tmp_path: Path) -> None:
    wide, path = np.random.default_rng(0).random((200, 500)), tmp_path / "model.pll"
    PLLClassifier(method, random_state=0).fit(wide, np.arange(200) % 2).save(path)
    assert load_file(path)["rows"].dtype == torch.float32
    # once to predict with, and once as reference rows for novelty
    assert 8 * wide.size < path.stat().st_size < 9 * wide.size
    assert load(path).fitted_.learned[0]["rows"].dtype == torch.float64


def test_a_network_of_ones_own_is_passed_again(saved: Saved, small: Path) -> None:
    path = saved["own network"][0]
    with pytest.raises(InputError, match=r"load\(path, network="):
        load(path)
    assert load(path, network=linear).predict(X).shape == (30,)
    with pytest.raises(ModelFileError, match="tensor"):
        load(path, network=deeper)
    with pytest.raises(InputError, match="network='lenet'"):
        load(small, network=linear)
    with pytest.raises(InputError, match="network=None"):
        load(saved["knn"][0], network=linear)


def test_a_method_of_ones_own_must_be_registered(tmp_path: Path) -> None:
    kind = make_dataclass("Mine", [], bases=(Proden,), namespace={"name": "mine"}, frozen=True)
    with patch.dict(METHODS, {"mine": kind}):
        PLLClassifier(kind(epochs=1)).fit(np.eye(3), [0, 1, 2]).save(tmp_path / "mine.pll")
        load(tmp_path / "mine.pll")
    with pytest.raises(ModelFileError, match=r"mine.pll: it was saved with the method 'mine'"):
        load(tmp_path / "mine.pll")


def test_a_model_of_version_0_1_0_is_read_without_a_checksum() -> None:
    with safe_open(REFERENCE / "model-0.1.0.pll", framework="pt") as opened:
        assert list(opened.metadata()) == [KEY]
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


def test_a_pickle_or_another_file_is_refused_and_never_run(tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.pll"
    bomb = pickle.dumps(Bomb(marker))
    torch.save(Bomb(marker), path)
    others = (b"", b"\0", b"Dear model,\n" * 99, b"\xff" * 99, b"\0" * 99)
    for content in (path.read_bytes(), bomb, *others):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.pll is not a model file"):
            load(path)
        assert not marker.exists()
    pickle.loads(bomb)
    assert marker.exists()  # the bomb is live


def test_folders_pipes_and_missing_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pll")
    for path in (tmp_path, tmp_path / "gone.pll", tmp_path / "pipe.pll"):
        with pytest.raises(ModelFileError, match=f"There is no file .*{path.name}, or it is"):
            load(path)


def test_every_truncated_file_is_refused(small: Path) -> None:
    whole = small.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    ends = {*range(0, header, header // 15), *range(header, len(whole), len(whole) // 25)}
    contents = [whole[:end] for end in sorted(ends | {8, header - 1, len(whole) - 1})]
    for content in (*contents, whole + b"more"):
        small.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"small\.pll"):
            load(small)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_refused_or_changes_nothing(
    kind: str, saved: Saved, tmp_path: Path
) -> None:
    path, arguments = saved[kind]
    whole, draw = path.read_bytes(), random.Random(0)
    answers = load_and_try(path, **arguments)
    header = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for end in [header] * 50 + [len(whole)] * 20:
        flipped = bytearray(whole)
        flipped[draw.randrange(end)] ^= draw.randrange(1, 256)
        (tmp_path / "flipped.pll").write_bytes(flipped)
        others = load_and_try(tmp_path / "flipped.pll", **arguments)
        refused += others is None
        assert others is None or all(map(np.array_equal, answers, others))
    assert refused > 60
    (tmp_path / "flipped.pll").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelFileError, match=r"flipped\.pll .*checksum is wrong"):
        load(tmp_path / "flipped.pll", **arguments)


# Descriptions that lie


def at(*keys: Any, value: Any) -> Change:
    """A change of one entry of the description."""

    def change(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        inner: Any = about
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def members(count: int) -> Change:
    """More members than tensors, with a seed for each."""
    return lambda about, _: [
        about.update(seeds=[0] * count),
        about["method"]["fields"].update(members=count),
    ]


def tensor(name: str, replacement: Callable[[Tensor], Tensor]) -> Change:
    """A change of the tensor of this name; "labels" are those of a classical method."""

    def change(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        key = min(tensors.keys() - {"rows"}) if name == "labels" else name
        tensors[key] = replacement(tensors[key]).contiguous()

    return change


def matrices(replacement: Callable[[Tensor], Tensor]) -> Change:
    """A change of all tensors with two axes or more."""
    return lambda _, tensors: tensors.update(
        {name: replacement(t).contiguous() for name, t in tensors.items() if t.ndim > 1}
    )


FIELDS, SHAPE, NAMES = ("method", "fields"), ("features", "shape"), ("classes", "names")
KEPT, TRIAL = "robustpll.reference", "robustpll.trial"
LINE = {"knots": [0, 1], "levels": [0, 1]}
NO_ROW = {"shift": [], "scale": []}
ANY_LIES: dict[str, Change] = {
    "unknown method": at("method", "name", value="foo"),
    "other method": at("method", "name", value="proden"),
    "unknown field": at(*FIELDS, "foo", value=1),
    "fewer classes": lambda about, _: about["classes"]["names"].pop(),
    "huge shape": at(*SHAPE, value=[10**9, 10**9]),
    "overflowing shape": at(*SHAPE, value=[2**32, 2**32]),
    "overflowing empty shape": lambda a, _: a["features"].update(NO_ROW, shape=[2**32, 2**32]),
    "negative shape": at(*SHAPE, value=[-2, -2]),
    "no shape": lambda about, _: about["features"].update(NO_ROW, shape=[]),
    "empty shape": lambda about, _: about["features"].update(NO_ROW, shape=[0]),
    "an odd unit": at("features", "unit", value="x"),
    "a curve of no number": at("features", "curves", value={"99999": LINE}),
    "a falling curve": at("features", "curves", value={"0": LINE | {"levels": [1, 0]}}),
    "a curve without end": at("features", "curves", value={"0": LINE | {"knots": [0, 2]}}),
    "a curve of odd lengths": at("features", "curves", value={"0": LINE | {"knots": [0, 0.5, 1]}}),
    "no tensors": lambda _, tensors: tensors.clear(),
    "fewer tensors": lambda _, tensors: tensors.pop(min(tensors)),
    "more tensors": lambda _, tensors: tensors.update(more=torch.zeros(3)),
    "half precision": matrices(Tensor.half),
    "integers": matrices(Tensor.long),
    "not a number": matrices(lambda t: t * torch.nan),
    "transposed": matrices(lambda t: t.mT),
    "flat": matrices(Tensor.flatten),
}
PICTURE_LIES: dict[str, Change] = {
    "other format": at("format", value=3),
    "no format": lambda about, _: about.pop("format"),
    "method no string": at("method", "name", value=["proden"]),
    "unknown estimator": at("estimator", value="Foo"),
    "unknown parameter": at("params", "foo", value=1),
    "epochs 0": at(*FIELDS, "epochs", value=0),
    "bad evidence": at(*FIELDS, "evidence", value="selu"),
    "bad ceiling": at(*FIELDS, "kl_ceiling", value=[1, 2]),
    "ceiling of dicts": at(*FIELDS, "kl_ceiling", value={}),
    "unknown network": at(*FIELDS, "network", value="cnn"),
    "other network": at(*FIELDS, "network", value="mlp"),
    "two members": at(*FIELDS, "members", value=2),
    "huge members": at(*FIELDS, "members", value=10**15),
    "endless members": at(*FIELDS, "members", value=10**30),
    "many members": members(5000),
    "fewer seeds": at("seeds", value=[]),
    "one class": at(*NAMES, value=["zero"]),
    "classes twice": at(*NAMES, value=["zero"] * 10),
    "nested classes": at(*NAMES, value=[["zero"]] * 10),
    "ragged classes": at(*NAMES, value=["zero", ["one"]] * 5),
    "classes of words as numbers": at("classes", "type", value="i"),
    "classes of objects": at("classes", "type", value="O"),
    "many classes": at(*NAMES, value=[str(number) for number in range(10_000)]),
    "wide": at(*SHAPE, value=[8, 9]),
    "endless shape": at(*SHAPE, value=[float("inf"), 8]),
    "short shift": at("features", "shift", value=[0.0]),
    "endless width": at("n_features_in", value=float("inf")),
    "features no dict": at("features", value=[]),
    "history no dict": at("history", value=3),
    "params no dict": at("params", value=[]),
}
CLASSICAL_LIES: dict[str, Change] = {
    "no neighbours": at(*FIELDS, "neighbours", value=0),
    "estimator of networks": at("estimator", value="RobustPLLClassifier"),
    "more classes": lambda about, _: about["classes"]["names"].append(3),
    "many classes": at(*NAMES, value=list(range(100_000))),
    "wide with scales": lambda about, _: about["features"].update(
        shape=[5], shift=[0.0] * 5, scale=[1.0] * 5
    ),
    "fewer rows than labels": tensor("rows", lambda t: t[:7]),
    "fewer labels than rows": tensor("labels", lambda t: t[:7]),
    "fewer features": tensor("rows", lambda t: t[:, :3]),
    "fewer columns of labels": tensor("labels", lambda t: t[:, :2]),
    "no rows": matrices(lambda t: t[:0]),
    "labels of integers": tensor("labels", Tensor.long),
}
NETWORK_LIES: dict[str, Change] = {
    "an infinite weight": tensor("linear2.weight", lambda t: t / 0),
    "a statistic that is no number": tensor("norm1.running_var", lambda t: t * torch.nan),
    "100,000 kept rows": tensor(KEPT, lambda _: torch.zeros(2, 100_000, 1)),
    "narrow kept rows": tensor(KEPT, lambda t: t[..., :299]),
    "kept rows of one member": tensor(KEPT, lambda t: t[:1]),
    "flat kept rows": tensor(KEPT, lambda t: t[0]),
    "a long class name": at(*NAMES, 0, value="x" * 10**7),
    "a class name with NUL": at(*NAMES, 0, value="a\0"),
    "another column": at("feature_names_in", 0, value="z"),
    "columns in another order": lambda about, _: about["feature_names_in"].reverse(),
    "words for a number": lambda about, _: about["features"]["categories"].update(number=["x"]),
    "scale 0": at("features", "scale", 0, value=0.0),
    "five members": members(5),
    "negative factor": at("trust", "recalibration", "factor", value=-1),
    "factor in words": at("trust", "recalibration", "factor", value="2"),
    "recalibration of everything": at("trust", "recalibration", "of", value="everything"),
    "recalibration of nothing": lambda about, _: about["trust"]["recalibration"].pop("of"),
    "more of a recalibration": at("trust", "recalibration", "more", value=1),
    "no limit": lambda about, _: about["trust"]["trial"].pop("limit"),
    "too sure": at("trust", "trial", "confidence", value=2),
    "no trial": lambda _, tensors: tensors.pop(TRIAL),
    "a trial of one row": tensor(TRIAL, lambda t: t[:1]),
    "an unsorted trial": tensor(TRIAL, lambda t: t.flip(1)),
}
MATRICES = ("half precision", "integers", "not a number", "transposed", "flat")  # it has none
WRAPPED_LIES: dict[str, Change] = {
    "no columns": tensor("columns", lambda t: t & False),
    "fewer columns": tensor("columns", lambda t: t & (torch.arange(3) > 0)),
    "columns of integers": tensor("columns", Tensor.long),
    "no bytes": tensor("estimator", lambda t: t[:0]),
    "half of the bytes": tensor("estimator", lambda t: t[: len(t) // 2]),
    "bytes of floats": tensor("estimator", Tensor.float),
    "bytes of noise": tensor("estimator", lambda t: (t * 37 + 5).to(torch.uint8)),
    "an unknown name": at(*FIELDS, "estimator", value="(callable)"),
    "one fold": at(*FIELDS, "folds", value=1),
    "wide with scales": CLASSICAL_LIES["wide with scales"],
}
FOREST_LIES: dict[str, Change] = {
    "no columns": WRAPPED_LIES["no columns"],
    "fewer columns": WRAPPED_LIES["fewer columns"],
    "a cycle": tensor("forest.children", lambda t: t.clamp(max=0)),
    "children outside": tensor("forest.children", lambda t: t + 1),
    "features outside": tensor("forest.feature", lambda t: t + 4),
    "no roots": lambda _, tensors: tensors.pop("forest.roots"),
    "fewer leaves": tensor("forest.value", lambda t: t[1:]),
    "negative leaves": tensor("forest.value", lambda t: t - 1),
    "an estimator": lambda _, tensors: tensors.update(estimator=torch.zeros(3, dtype=torch.uint8)),
    "a lost estimator": at(*FIELDS, "estimator", value="(estimator)"),
}
STACK = ("stack", "powers")
STACK_LIES: dict[str, Change] = {
    "no stack": lambda about, _: about.pop("stack"),
    "a stack of nothing": at("stack", value=None),
    "no power": lambda about, _: about["stack"]["powers"].pop("trees"),
    "a power of words": at(*STACK, "trees", value="1"),
    "a power without end": at(*STACK, "trees", value=float("inf")),
    "another learner": at(*STACK, "others", value=1.0),
    "a large offset": at("stack", "offset", value=1000.0),
    "no method of networks": at("stack", "network", value=None),
    "another method of networks": at("stack", "network", "name", value="pl_knn"),
    "itself as networks": at("stack", "network", "name", value="auto"),
    "many members": at("stack", "network", "fields", "members", value=10**9),
    "fewer members": at("stack", "network", "fields", "members", value=2),
    "fewer seeds": lambda about, _: about["seeds"].pop(),
    "wide networks": at("stack", "network", "fields", "network", value="wide"),
    "a network of code": at("stack", "network", "fields", "network", value="(callable)"),
    "a cycle": tensor("trees.children", lambda t: t.clamp(max=0)),
    "a shared child": tensor("trees.children", lambda t: t[:, :1].expand(-1, 2).contiguous()),
    "features outside": tensor("trees.feature", lambda t: t - 1),
    "children of floats": tensor("trees.children", Tensor.float),
    "thresholds of integers": tensor("trees.threshold", Tensor.int),
    "fewer nodes": tensor("trees.threshold", lambda t: t[:-1]),
    "fewer classes in leaves": tensor("trees.value", lambda t: t[:, :2].contiguous()),
    "other leaves": tensor("trees.value", lambda t: t * 2),
    "no values": lambda _, tensors: tensors.pop("trees.value"),
    "more of a forest": lambda _, tensors: tensors.update({"trees.more": torch.zeros(1)}),
    "a tensor of nobody": lambda _, tensors: tensors.update({"more": torch.zeros(1)}),
}
LIES = {
    "pictures": ANY_LIES | PICTURE_LIES,
    "networks": ANY_LIES | NETWORK_LIES,
    "knn": ANY_LIES | CLASSICAL_LIES,
    "ipal": ANY_LIES | CLASSICAL_LIES,
    "wrapped": {name: ANY_LIES[name] for name in ANY_LIES if name not in MATRICES} | WRAPPED_LIES,
    "forest": FOREST_LIES,
    "default": STACK_LIES,
}


@pytest.mark.parametrize("kind", LIES)
def test_a_description_that_lies_is_refused_at_once(
    kind: str, saved: Saved, tmp_path: Path
) -> None:
    path = tmp_path / "small.pll"
    path.write_bytes(saved[kind][0].read_bytes())
    assert load_and_try(changed(path, lambda about, tensors: None)) is not None
    for name, lie in LIES[kind].items():
        try:
            load(changed(path, lie))
        except ModelFileError as error:
            refusal = str(error)
        else:
            pytest.fail(f"{name!r} is believed")
        assert "changed.pll" in refusal
        assert name != "other format" or "format 3" in refusal


def test_tensors_without_a_description_are_refused(tmp_path: Path) -> None:
    texts = ("", "{", "[]", "null", "{}", "[" * 100_000)
    for metadata in (None, {}, {"other": "1"}, *({KEY: text} for text in texts)):
        save_file({"weight": torch.zeros(3)}, tmp_path / "bare.pll", metadata)
        with pytest.raises(ModelFileError, match=r"bare\.pll is not a model file"):
            load(tmp_path / "bare.pll")


def test_a_long_class_name_takes_no_more_memory_than_the_file(small: Path) -> None:
    names = ["x" * 10**6, *map(str, range(2000))]  # 8 GB as an array of numpy's
    path = changed(small, at(*NAMES, value=names))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"1,000,000 characters"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * path.stat().st_size
    finally:
        tracemalloc.stop()


ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**30, -(10**400), 2**63, 2**31, 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "0", "\0", "é" * 50, "x" * 20_000),
    *([], {}, [[]], [0], [None], ["a", "b"], [1.0] * 7, {"a": 1}, {"": {}}, [[[[[]]]]]),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Containers in a description with a key or index of each; of long lists the first two."""
    keys = list(value) if isinstance(value, dict) else range(2)[: len(value)]
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def mutated(about: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One to three changes: a part deleted, replaced, wrapped, doubled, cut or renamed."""
    about = copy.deepcopy(about)
    for _ in range(draw.randint(1, 3)):
        holder, key = draw.choice(list(places(about)))
        part, odd = holder[key], copy.deepcopy(draw.choice(ODD))
        lists = [part * 2, part[:-1]] if isinstance(part, list) else []
        holder[key] = draw.choice([[part], odd, odd, *lists])
        change = draw.randrange(5)
        if change == 0 and isinstance(holder, dict):
            holder[f"{key}x"] = part
        if change < 2:
            del holder[key]
    return about


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_description_is_refused_or_harmless(
    kind: str, saved: Saved, tmp_path: Path
) -> None:
    """Nothing but ModelFileError and InputError comes out; see `load_and_try`."""
    path, arguments = saved[kind]
    about, tensors, draw = described(path), load_file(path), random.Random(kind)
    refused = 0
    for number in range(100):
        text = json.dumps(mutated(about, draw))
        metadata = {KEY: text} | ({SUM: checksum(text, tensors)} if number % 2 else {})
        save_file(tensors, tmp_path / "odd.pll", metadata)
        refused += load_and_try(tmp_path / "odd.pll", **arguments) is None
    assert refused > 50


# Archives of scikit-learn estimators


def archived(thing: Any) -> Change:
    """A change of the estimator: to skops' bytes of a thing, or to bytes."""
    data = thing if isinstance(thing, bytes) else skops.io.dumps(thing)
    content = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
    return lambda _, tensors: tensors.update(estimator=content)


def rezipped(data: bytes, change: Callable[[str, bytes], tuple[str, bytes]], method: int) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copied:
        for name in source.namelist():
            copied.writestr(*change(name, source.read(name)), compress_type=method)
    return target.getvalue()


def test_an_archive_with_other_content_is_refused(saved: Saved, tmp_path: Path) -> None:
    path = tmp_path / "small.pll"
    path.write_bytes(saved["wrapped"][0].read_bytes())
    honest = load_file(path)["estimator"].numpy().tobytes()
    bomb = np.zeros(10**7)
    three = np.arange(30) % 3
    tree, narrow = DecisionTreeClassifier().fit(X, three), GaussianNB().fit(X[:, :3], three)
    broken = GaussianNB().fit(X, three)
    broken.theta_ = broken.theta_ * np.nan
    things = {
        "a list": [1, 2],
        "an unfitted estimator": GaussianNB(),
        "fewer features": narrow,
        "fewer classes": GaussianNB().fit(X, three > 0),
        "not finite": broken,
        "a tree": tree,
        "libsvm": CalibratedClassifierCV(SVC()).fit(X, three),
        "an own function": FunctionTransformer(deeper_rows),
        "compressed": rezipped(honest, lambda *entry: entry, zipfile.ZIP_DEFLATED),
        "a bomb": rezipped(skops.io.dumps(bomb), lambda *entry: entry, zipfile.ZIP_DEFLATED),
        "another file": rezipped(honest, lambda n, d: (n.replace(".npy", ".npz"), d), 0),
        "no schema": rezipped(honest, lambda n, d: (n.replace("schema.json", "1.npy"), d), 0),
        "a pickle": pickle.dumps(Bomb(tmp_path / "marker")),
    }
    for thing in things.values():
        damaged = changed(path, archived(thing))
        with pytest.raises(ModelFileError, match=r"changed\.pll"):
            load(damaged)
    assert not (tmp_path / "marker").exists()
    assert load(changed(path, archived(honest))).predict(X).shape == (30,)


def test_an_array_that_is_named_again_and_again_takes_no_memory(
    saved: Saved, tmp_path: Path
) -> None:
    path = tmp_path / "small.pll"
    path.write_bytes(saved["wrapped"][0].read_bytes())
    data = skops.io.dumps([np.zeros(10**5), np.ones(3)])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    schema["content"] = [schema["content"][0] | {"__id__": number} for number in range(2000)]
    text = json.dumps(schema).encode()
    many = rezipped(data, lambda n, d: (n, text if n == "schema.json" else d), 0)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="more than once"):
            load(changed(path, archived(many)))
        assert tracemalloc.get_traced_memory()[1] < 5e7  # all of them would take 1.6 GB
    finally:
        tracemalloc.stop()


def test_mutated_archives_are_refused_or_harmless(saved: Saved, tmp_path: Path) -> None:
    path, draw = tmp_path / "small.pll", random.Random(0)
    path.write_bytes(saved["wrapped"][0].read_bytes())
    honest = load_file(path)["estimator"].numpy().tobytes()

    def mutate(name: str, data: bytes) -> tuple[str, bytes]:
        if name == "schema.json":
            return name, json.dumps(mutated(json.loads(data), draw)).encode()
        flipped = bytearray(data)
        if draw.random() < 0.3:
            flipped[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        return name, bytes(flipped)

    refused = 0
    for _ in range(150):
        refused += load_and_try(changed(path, archived(rezipped(honest, mutate, 0)))) is None
    assert refused > 75


def test_estimators_that_skops_does_not_trust_are_not_saved(tmp_path: Path) -> None:
    learners: dict[str, Any] = {
        r"in a file: sklearn\.tree\._tree\.Tree\. Use export_onnx": DecisionTreeClassifier(),
        "deeper": make_pipeline(FunctionTransformer(deeper_rows), GaussianNB()),
        "libsvm|sklearn.svm": make_pipeline(SelectFromModel(SVC(kernel="linear")), GaussianNB()),
    }
    for sentence, learner in learners.items():
        model = PLLClassifier(Wrapped(learner, labels="prior"), random_state=0).fit(X, LABELS)
        with pytest.raises(InputError, match=f"The model is not saved: .*({sentence})"):
            model.save(tmp_path / "model.pll")
    assert list(tmp_path.iterdir()) == []


def test_an_estimator_object_comes_back_unfitted_and_equal_models_have_equal_bytes(
    tmp_path: Path,
) -> None:
    for name in ("one.pll", "other.pll"):
        learner = make_pipeline(StandardScaler(), LogisticRegression(C=3.0))
        model = PLLClassifier(Wrapped(learner, folds=3), random_state=0).fit(X, LABELS)
        model.save(tmp_path / name)
    again = load(tmp_path / "one.pll")
    assert (tmp_path / "one.pll").read_bytes() == (tmp_path / "other.pll").read_bytes()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.method.folds == 3
    assert again.method.estimator[-1].C == 3.0
    assert not hasattr(again.method.estimator[-1], "coef_")
    assert again.fit(X, WORDS).score(X, WORDS) > 0.3


@pytest.mark.parametrize(
    "learner",
    [
        ExtraTreesClassifier(5),
        RandomForestRegressor(5),
        RandomForestRegressor(5, criterion="absolute_error", min_samples_leaf=5),  # of medians
    ],
)
def test_a_forest_object_comes_back_unfitted_and_predicts_the_same(
    learner: Any, tmp_path: Path
) -> None:
    model = PLLClassifier(Wrapped(learner, folds=3), random_state=0)
    model.fit(X, np.eye(4, dtype=bool)[LABELS]).save(tmp_path / "one.pll")  # no row has class 3
    again = load(tmp_path / "one.pll")
    again.save(tmp_path / "other.pll")
    for loaded in (again, load(tmp_path / "other.pll")):
        np.testing.assert_array_equal(loaded.predict_proba(2 * X), model.predict_proba(2 * X))
        assert loaded.method.estimator.get_params() == learner.get_params()
    assert again.fit(X, WORDS).score(X, WORDS) > 0.3


def test_a_default_model_has_networks_and_trees_and_finds_the_same_novel_rows(
    saved: Saved,
) -> None:
    model = load(saved["default"][0])
    assert model.fitted_.learners.startswith("networks and trees")
    assert model.reference_.rows.shape == (5, 150, 256)  # of the last hidden layers
    far = np.concatenate([MANY[:20], 100 * MANY[:20]])
    novel = model.decide(far, coverage=1.0).reason == "unlike the training data"
    assert not novel[:20].any()
    assert novel[20:].mean() > 0.5


# Saving


def test_what_cannot_be_read_back_is_not_saved(tmp_path: Path) -> None:
    class Mine(RobustPll):
        """Would be read as RobustPll, whose name it inherits."""

    odd = quick().fit(X, LABELS)
    odd.notes_ = ["not a dict"]
    mine = PLLClassifier(Mine(epochs=1), random_state=0).fit(X, LABELS)
    models: dict[str, Any] = {
        "not saved.*not a mapping": odd,
        "Mine is a method of your own": mine,
    }
    for sentence, model in models.items():
        with pytest.raises(InputError, match=sentence):
            model.save(tmp_path / "model.pll")
    for unfitted in (RobustPLLClassifier(), PLLClassifier(RobustPll())):
        with pytest.raises(NotFittedError):
            unfitted.save(tmp_path / "model.pll")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(small: Path) -> None:
    model, before = quick().fit(X, LABELS), small.read_bytes()
    with pytest.raises(OSError, match=small.parent.name):
        model.save(small.parent)
    with pytest.raises(InputError, match=r"no folder .*gone"):
        model.save(small.parent / "gone" / "model.pll")
    assert small.read_bytes() == before
    assert list(small.parent.iterdir()) == [small]


# Devices and processes


def test_a_device_that_is_not_there_is_the_callers_error(small: Path) -> None:
    with pytest.raises(InputError, match="device"):
        load(small, device="tpu")


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cuda", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")),
        ("cuda", RuntimeError("CUDA error: device-side assert triggered")),
        ("cpu", MemoryError()),
    ],
)
def test_a_device_without_room_is_not_taken_for_a_damaged_file(
    device: str, error: Exception, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    module = "robustpll.estimator.model_file"
    monkeypatch.setattr(f"{module}.chosen_device", lambda name: torch.device(device))
    monkeypatch.setattr(f"{module}.Classical", full)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    with pytest.raises(InputError, match=r'is not loaded.*enough memory.* pass device="cpu"'):
        load(saved["knn"][0])


FORKING = """
import os, sys
import numpy as np, torch
import robustpll

torch.set_num_threads(4)
models = [robustpll.load(path, device="cpu") for path in sys.argv[1:]]
assert torch.get_num_threads() == 4
child = os.fork()
if child == 0:
    rows = np.random.default_rng(0).normal(size=(3000, 200))
    fine = all(np.isfinite(model.predict_proba(rows)).all() for model in models)
    os._exit(0 if fine else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_model_that_was_loaded_before_a_fork_predicts_after_it(tmp_path: Path) -> None:
    """As a server does that loads first and forks its workers; a hang is ended by the watchdog."""
    rows, labels = RNG.normal(size=(90, 200)), np.arange(90) % 3
    PLLClassifier(PlKnn()).fit(rows, labels).save(tmp_path / "neighbours.pll")
    quick(epochs=1).fit(rows, labels).save(tmp_path / "networks.pll")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("OMP_", "MKL_"))}
    command = [sys.executable, "-c", FORKING, *map(str, tmp_path.glob("*.pll"))]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        assert process.wait(timeout=300) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)  # with the child that hangs
            process.wait()
