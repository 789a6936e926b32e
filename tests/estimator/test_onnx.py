"""A fitted classifier as an ONNX file: the same answers, and what has none."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor, nn
from typer.testing import CliRunner

from robustpll import InputError, PLLClassifier, RobustPLLClassifier, load
from robustpll.cli import app
from robustpll.engine.networks import CONVOLUTIONAL
from robustpll.methods import (
    METHODS,
    Auto,
    ClassicalMethod,
    Pico,
    PlKnn,
    Proden,
    ProdenDropout,
    RobustPll,
    RobustPllEns,
    Wrapped,
)

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 3
X = RNG.normal(LABELS[:, None], 1.0, size=(120, 5)) * 1000 - 300
PICTURES = RNG.random((40, 8, 8)) * 255
NAMES = np.array(["ant", "bee", "übel"])
OPINION = ("probability", "belief", "uncertainty", "entropy")
CLASSICAL = {name for name, method in METHODS.items() if issubclass(method, ClassicalMethod)}
# Pruned trains another method.
NETWORKS = [name for name in METHODS if name not in CLASSICAL | {"proden_dropout", "pruned"}]


def written(model: Any, folder: Path) -> Any:
    """What runs the file that the model is exported to."""
    model.export_onnx(folder / "model.onnx")
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


def check_same(session: Any, model: Any, rows: np.ndarray, of: Any = None) -> None:
    """Of many rows and of each of a few; `of` are the rows as the model takes them."""
    opinion = model.predict_opinion(rows if of is None else of)
    labels = model.predict(rows if of is None else of)
    for part in (slice(None), slice(0, 1), slice(3, 4)):
        predicted, *answers = session.run(("predicted", *OPINION), {"X": rows[part]})
        np.testing.assert_array_equal(model.classes_[predicted], labels[part])
        for name, answer in zip(OPINION, answers, strict=True):
            np.testing.assert_allclose(answer, getattr(opinion[part], name), atol=1e-5)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """Three members, recalibrated; what runs the file that the command wrote, and the file."""
    folder = tmp_path_factory.mktemp("ensemble")
    method = RobustPllEns(epochs=20, members=3, kl_ceiling=(0.5, 1.0, 2.0))
    model = PLLClassifier(method, random_state=0).fit(X[::2], NAMES[LABELS[::2]])
    model.recalibrate(X[1::2], NAMES[LABELS[1::2]]).save(folder / "model.pll")
    out = folder / "model.onnx"
    result = CliRunner().invoke(app, ["export", str(folder / "model.pll"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "takes rows of 5 numbers as 'X'" in result.stdout
    return model, onnxruntime.InferenceSession(out), out


def test_a_recalibrated_ensemble_answers_the_same(ensemble: tuple[Any, Any, Path]) -> None:
    model, session, path = ensemble
    assert abs(model.recalibration_.factor - 1) > 0.01
    check_same(session, model, X)
    about = json.loads(session.get_modelmeta().custom_metadata_map["robustpll"])
    assert (about["format"], about["classes"]) == (1, NAMES.tolist())
    assert (about["method"], about["members"], about["shape"]) == ("robust_pll_ens", 3, [5])
    assert about["recalibration"]["factor"] == model.recalibration_.factor
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert b"robustpll/" not in path.read_bytes()  # no path of a source file


def test_a_row_that_predict_refuses_has_no_answer(ensemble: tuple[Any, ...]) -> None:
    for odd in (np.nan, np.inf, -np.inf, 1e300, -1e25):
        rows = X[:4].copy()
        rows[2, 1] = odd
        predicted, *answers = ensemble[1].run(("predicted", *OPINION), {"X": rows})
        assert (predicted == -1).tolist() == [False, False, True, False]
        for answer in answers:
            assert np.isnan(answer[2]).all()
            assert np.isfinite(np.delete(answer, 2, axis=0)).all()


class Own(nn.Module):
    """Has what MLPs have not: a shortcut, dropout, and an output that is scaled."""

    def __init__(self, inputs: int, k: int) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(inputs, inputs), nn.Linear(inputs, k)
        self.dropout, self.norm = nn.Dropout(0.5), nn.LayerNorm(inputs)
        self.factor = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.dropout(torch.nn.functional.gelu(self.hidden(x))))
        logits: Tensor = self.factor * self.output(x)
        return logits


class Random(Own):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 3 * torch.rand_like(x[:, :1])


class ByNumberOfRows(Own):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 if x.shape[0] > 5 else 9)


class ByValues(Own):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def own(kind: type[Own]) -> Any:
    settings: Any = {"epochs": 2, "members": 2, "evidence": "exp"}
    method = RobustPll(network=lambda shape, k: kind(shape[0], k), **settings)
    return PLLClassifier(method, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NETWORKS, *CONVOLUTIONAL, "members of your own"])
def test_every_method_and_network_answers_the_same(name: str, tmp_path: Path) -> None:
    rows = PICTURES if name in CONVOLUTIONAL else X
    if name in METHODS:
        method = METHODS[name](epochs=2, batch_size=30)  # type: ignore[call-arg]
        model: Any = PLLClassifier(method, random_state=0)
    elif rows is PICTURES:
        model = RobustPLLClassifier(network=name, epochs=2, members=2, random_state=0)
    else:
        model = own(Own)
    model.fit(rows, NAMES[LABELS[: len(rows)]])
    check_same(written(model, tmp_path), model, rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Random, ByNumberOfRows, ByValues])
def test_a_network_that_has_no_faithful_graph_is_refused(
    kind: type[Own], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"forward\(\) must not .* how many rows there are"):
        own(kind).fit(X, LABELS).export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_network_with_an_embedding_and_a_slow_copy_answers_the_same(tmp_path: Path) -> None:
    method = Pico(epochs=1, batch_size=20, network="convnet")
    model = PLLClassifier(method, random_state=0).fit(PICTURES, NAMES[LABELS[:40]])
    check_same(written(model, tmp_path), model, PICTURES)


def test_a_network_of_your_own_takes_the_numbers_that_the_metadata_name(tmp_path: Path) -> None:
    days = 1.7e9 + 86400.0 * np.arange(120)  # float32 would take neighbours for the same
    words = np.where(np.arange(120) % 7 == 0, None, NAMES[LABELS])
    table = pd.DataFrame({"day": days, "gaps": X[:, 0], "word": words})
    table.loc[::5, "gaps"] = np.nan
    labels = (LABELS > 0) ^ (RNG.random(120) < 0.1)  # wrong ones, so that sureness is punished
    method = Proden(epochs=20, network=lambda shape, k: Own(shape[0], k))
    model = PLLClassifier(method, random_state=0).fit(table[::2], labels[::2])
    model.recalibrate(table[1::2], labels[1::2])
    assert model.recalibration_.of == "logits"
    session = written(model, tmp_path)
    about = json.loads(session.get_modelmeta().custom_metadata_map["robustpll"])
    assert about["classes"] == [False, True]
    encoded = {
        "day": days,
        "gaps": table["gaps"].fillna(about["fill"]["gaps"]),
        "gaps is missing": table["gaps"].isna(),
        **{f"word is {word}": table["word"] == word for word in about["categories"]["word"]},
    }
    rows = np.stack([encoded[name] for name in about["columns"]], axis=1).astype(np.float64)
    check_same(session, model, rows, table)


@pytest.mark.parametrize("learner", ["auto", "network", "trees"])
def test_the_default_method_answers_the_same(learner: Any, tmp_path: Path) -> None:
    model = PLLClassifier(Auto(learner, epochs=5, members=5), random_state=0).fit(X, NAMES[LABELS])
    assert len(model.fitted_.runs[0].parts) == (2 if learner == "auto" else 1)
    model.recalibrate(X, NAMES[LABELS[::-1]])
    session = written(model, tmp_path)
    check_same(session, model, X)
    wide = np.random.default_rng(1).normal(0, 2000, (5000, 5))
    (answers,) = session.run(["probability"], {"X": wide})
    off = abs(answers - model.predict_proba(wide)).max(-1) > 1e-4
    assert off.mean() < 1e-3  # rows at the threshold of a tree
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)
    about = json.loads(session.get_modelmeta().custom_metadata_map["robustpll"])
    assert (about["method"], about["members"]) == ("auto", 1 if learner == "trees" else 5)
    rows = np.where(np.arange(5) == 1, np.nan, X[:4])
    assert (session.run(["predicted"], {"X": rows})[0] == -1).all()


@pytest.mark.parametrize("scale", ["auto", "quantile", "standard", None])
def test_scales_are_part_of_the_graph(scale: Any, tmp_path: Path) -> None:
    far = X.copy()
    far[::30, :2] *= 1e4  # outliers
    far[1::2, 1] = 0.0  # fewer knots
    settings: Any = {"learner": "network", "members": 2, "epochs": 5, "random_state": 0}
    model = RobustPLLClassifier(scale=scale, **settings).fit(far, NAMES[LABELS])
    assert len(model.features_.curves) == {"auto": 2, "quantile": 5}.get(scale, 0)
    wide = np.random.default_rng(1).normal(0, 5000, (200, 5))  # within and beyond all ranges
    check_same(written(model, tmp_path), model, np.concatenate([far, wide]))


def test_a_forest_from_a_file_answers_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PLLClassifier(Wrapped("random_forest", labels="prior"), random_state=0)
    model.fit(X, np.eye(4, dtype=bool)[LABELS]).save(tmp_path / "model.pll")  # no row has class 3
    again = load(tmp_path / "model.pll")
    (tmp_path / "model.pll").unlink()
    monkeypatch.setitem(sys.modules, "skl2onnx", None)  # it is not needed
    check_same(written(again, tmp_path), model, X)


@pytest.mark.parametrize("estimator", ["forest", "random_forest", "logistic_regression", "own"])
def test_wrapped_estimators_answer_the_same(estimator: Any, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx", reason="the extra `onnx` is not installed")
    learner = make_pipeline(StandardScaler(), GaussianNB()) if estimator == "own" else estimator
    model = PLLClassifier(Wrapped(learner, labels="prior"), random_state=0)
    sets = np.eye(4, dtype=bool)[LABELS]  # no row has the last class
    sets[::3, 1] = True
    model.fit(X[:100], sets[:100]).recalibrate(X, np.eye(4, dtype=bool)[LABELS] | sets)
    session = written(model, tmp_path)
    check_same(session, model, X)
    wide = np.random.default_rng(1).normal(0, 2000, (5000, 5))
    (answers,) = session.run(["probability"], {"X": wide})
    off = abs(answers - model.predict_proba(wide)).max(-1) > 1e-4
    assert off.mean() < 1e-3  # rows at the threshold of a tree
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)
    rows = np.where(np.arange(5) == 1, np.nan, X[:4])
    assert (session.run(["predicted"], {"X": rows})[0] == -1).all()


def test_wrapped_pictures_are_flat_rows(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx", reason="the extra `onnx` is not installed")
    model = PLLClassifier(Wrapped("logistic_regression", labels="prior"), random_state=0)
    model.fit(PICTURES, NAMES[LABELS[:40]])
    check_same(written(model, tmp_path), model, PICTURES)


def test_an_estimator_that_skl2onnx_does_not_know_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx", reason="the extra `onnx` is not installed")
    learner = make_pipeline(FunctionTransformer(np.tanh), LogisticRegression())
    model = PLLClassifier(Wrapped(learner, labels="prior"), random_state=0).fit(X, LABELS)
    with pytest.raises(InputError, match=r"skl2onnx cannot write Pipeline .* another estimator"):
        model.export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    dropout = PLLClassifier(ProdenDropout(epochs=1, passes=2), random_state=0)
    models = {"PlKnn is no network": PLLClassifier(PlKnn()), r"random passes": dropout}
    for sentence, model in models.items():
        with pytest.raises(InputError, match=sentence):
            model.fit(X, LABELS).export_onnx(tmp_path / "model.onnx")
    with pytest.raises(NotFittedError):
        PLLClassifier().export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra_a_hint_says_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # importing it now raises ImportError
    with pytest.raises(InputError, match=rf"{package} is needed.*'robustpll\[onnx\]'"):
        PLLClassifier(PlKnn()).fit(X, LABELS).export_onnx(tmp_path / "model.onnx")


def test_the_command_refuses_in_a_sentence(tmp_path: Path) -> None:
    PLLClassifier(PlKnn()).fit(X, LABELS).save(tmp_path / "model.pll")
    command = ["export", str(tmp_path / "model.pll"), "--out"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "model.onnx")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("PlKnn is no network")
    result = CliRunner().invoke(app, [*command, str(tmp_path / "model.pkl")])
    assert result.exit_code == 2
    assert "must end in .onnx" in " ".join(result.stderr.replace("│", "").split())  # wrapped
