"""Dicts, tuples and integers as X reach a user's module unscaled, in everything a model does."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

from robustpll import InputError, ModelFileError, PLLClassifier, RobustPLLClassifier, load
from robustpll.attacks import PGD
from robustpll.evaluate.ood import OodScorer
from robustpll.methods import Auto, Papi, Pico, Proden, ProdenAdvEns, RobustPll, RobustPllAt

ROWS, WORDS = 90, 40
RANDOM = np.random.default_rng(0)
LABELS = np.arange(ROWS) % 3
IDS = RANDOM.integers(10, WORDS, size=(ROWS, 6))
IDS[:, 2] = 3 * LABELS + RANDOM.integers(3, size=ROWS)  # one word tells the class
MASK = np.ones_like(IDS)
MASK[::2, 4:] = 0
X = {"input_ids": IDS, "attention_mask": MASK}


class Reader(nn.Module):
    """As a model of Hugging Face: named inputs, and an object with logits."""

    def __init__(self, words: int = WORDS, k: int = 3) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, 16), nn.Linear(16, k)
        positions = torch.arange(6)
        self.register_buffer("positions", positions, persistent=False)  # not part of a file
        self.tied = self.words  # two names for one tensor

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        assert len(self.positions) == input_ids.shape[1]
        weight = attention_mask[..., None] / attention_mask.sum(1)[:, None, None]
        return SimpleNamespace(loss=None, logits=self.head((self.words(input_ids) * weight).sum(1)))


def of_ids() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(), nn.Linear(48, 3))


def proden(network: Any, **settings: Any) -> PLLClassifier:
    method = Proden(network=network, epochs=60, batch_size=30, learning_rate=0.02)
    return PLLClassifier(method, random_state=0, **settings)


def default(network: Any, **settings: Any) -> RobustPLLClassifier:
    options: Any = {"epochs": 60, "members": 5, "learning_rate": 0.03, "batch_size": 24}
    return RobustPLLClassifier(network=network, random_state=0, **options | settings)


@pytest.mark.parametrize("kind", [proden, default])
@pytest.mark.parametrize(
    ("network", "rows"),
    [(Reader(), X), (Reader, (IDS, MASK)), (of_ids(), IDS), (of_ids, IDS.astype(np.uint8))],
    ids=["dict", "tuple", "integers", "bytes"],
)
@pytest.mark.filterwarnings("ignore:X has training rows")
def test_ids_are_learned_by_all_that_a_model_does(
    kind: Callable[..., Any], network: Any, rows: Any, tmp_path: Path
) -> None:
    model = kind(network).fit(rows, LABELS)
    assert model.score(rows, LABELS) > 0.9
    probability = model.predict_proba(rows)
    np.testing.assert_array_equal(model.predict(rows), probability.argmax(1))
    assert model.decide(rows, coverage=0.5).coverage > 0.3
    OodScorer.of(model, rows).scores(rows)
    again = clone(model).fit(rows, LABELS)
    np.testing.assert_array_equal(again.predict_proba(rows), probability)
    model.recalibrate(rows, LABELS).calibrate_decisions(rows, LABELS)
    probability = model.predict_proba(rows)
    model.save(tmp_path / "model.pll")
    loaded = load(tmp_path / "model.pll", network=network)
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(rows), probability)
        decided, expected = other.decide(rows, error=0.5), model.decide(rows, error=0.5)
        assert decided.reason.tolist() == expected.reason.tolist()
    for name in ("save", "fit"):  # it can be written again, and learn again
        getattr(loaded, name)(*([tmp_path / "again.pll"] if name == "save" else [rows, LABELS]))
    assert (tmp_path / "again.pll").read_bytes() == (tmp_path / "model.pll").read_bytes()


def test_a_module_gets_exactly_what_x_holds() -> None:
    class Checking(nn.Module):
        def __init__(self, shape: Any, k: int) -> None:
            super().__init__()
            assert shape == {"numbers": (2, 3), "id": (), "known": (2,)}
            self.head = nn.Linear(6, k)

        def forward(self, id: Tensor, known: Tensor, numbers: Tensor) -> Tensor:
            assert [part.dtype for part in (id, known)] == [torch.int64, torch.bool]
            assert numbers.shape[1:] == (2, 3)
            assert (numbers[known].sum(-1).long() == 1000).all()  # not scaled
            assert (id == 2**24 - 1).all()
            return self.head(numbers.flatten(1))

    numbers = np.full((ROWS, 2, 3), 1000 / 3)
    rows = {"numbers": numbers + 1e-3, "id": np.full(ROWS, 2**24 - 1), "known": MASK[:, 3:5] > 0}
    model = proden(Checking).set_params(method__epochs=1).fit(rows, LABELS)
    torches = {name: torch.from_numpy(part) for name, part in rows.items()}
    np.testing.assert_array_equal(model.predict_proba(torches), model.predict_proba(rows))


def test_integers_without_an_embedding_are_scaled_as_before() -> None:
    linear = nn.Linear(6, 3)
    models = [proden(linear).fit(rows, LABELS) for rows in (IDS, IDS.astype(float))]
    assert models[0].features_.layout is None
    np.testing.assert_array_equal(*(model.predict_proba(IDS) for model in models))
    rows = tuple([1.0 * row, 2.0] for row in range(6))  # a tuple of lists is an array of rows
    assert proden(nn.Linear(2, 3)).fit(rows, LABELS[:6]).features_.shape == (2,)


def test_novelty_compares_hidden_layers_and_never_ids() -> None:
    assert default(of_ids, epochs=2).fit(IDS, LABELS).reference_.rows.shape == (5, ROWS, 48)
    model = default(Reader, epochs=2).fit(X, LABELS)
    assert model.reference_ is None
    assert "unlike the training data" not in model.decide(X, coverage=0.5).reason


BAD_INPUTS: dict[str, tuple[Any, str]] = {
    "nothing": ({}, r"a dict with an array for each argument.*keys are \[\]"),
    "no names": ({1: IDS}, r"keys are \[1\]"),
    "lengths": (
        X | {"attention_mask": MASK[1:]},
        r"equally many rows: .*\['attention_mask'\] has 89",
    ),
    "objects": (X | {"input_ids": IDS.astype(object)}, r"X\['input_ids'\] must be .* type object"),
    "words": (X | {"input_ids": IDS.astype(str)}, "must be an array of integers, floats or bools"),
    "ragged": (X | {"input_ids": [[1], [2, 3]] * 45}, "Pad rows to one length"),
    "a number": (X | {"input_ids": 7}, "with a row for each of y"),
    "empty": (X | {"input_ids": IDS[:, :0]}, r"shape \(90, 0\)"),
    "negative": (X | {"input_ids": IDS - 1}, r"ids from 0 to 39; X has ids from -1 to"),
    "beyond": (
        X | {"input_ids": IDS + 9},
        r"ids from 0 to 39; X has ids from \d+ to 4\d.*Renumber",
    ),
    "huge": (X | {"input_ids": IDS + 2**24}, r"integers of 2\*\*24 or more in 90 rows"),
    "floats": (X | {"input_ids": IDS * 1.0}, "embedding of the network takes integers"),
    "gaps": (
        X | {"attention_mask": np.where(MASK, 1, np.nan)},
        r"\['attention_mask'\] has NaN.* 45",
    ),
    "too few": ({"input_ids": IDS}, r"failed on .*missing.*'attention_mask'.*keys of X as arg"),
    "too many": (X | {"other": MASK}, "failed on .*unexpected keyword argument 'other'"),
    "fewer than y": ({name: part[1:] for name, part in X.items()}, "89 rows, but y has 90"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_inputs_that_cannot_be_meant_are_refused(case: str) -> None:
    rows, fault = BAD_INPUTS[case]
    with pytest.raises(InputError, match=fault):
        proden(Reader).fit(rows, LABELS)


def test_rows_to_predict_must_be_as_in_training() -> None:
    model = proden(Reader).set_params(method__epochs=1).fit(X, LABELS)
    wide = {name: np.repeat(part, 2, axis=1) for name, part in X.items()}
    for rows, fault in (
        ({"input_ids": IDS}, r"must hold .*X\['attention_mask'\], as in training"),
        (IDS, "it holds X"),
        (wide, r"shape \(12,\) and type int64; in training, they had \(6,\) and int64"),
        (X | {"input_ids": IDS * 1.0}, "type float64; in training, .* int64"),
        (X | {"input_ids": IDS + 9}, "ids from 0 to 39; X has ids"),
    ):
        for ask in (model.predict, model.predict_proba, lambda X: model.decide(X, coverage=0.5)):
            with pytest.raises(InputError, match=fault):
                ask(rows)
    one = {name: part[:1].tolist() for name, part in X.items()}
    np.testing.assert_allclose(model.predict_proba(one), model.predict_proba(X)[:1], atol=1e-6)


@pytest.mark.parametrize("rows", [IDS * 1.0, pd.DataFrame(IDS)], ids=["floats", "table"])
def test_numbers_for_an_embedding_must_be_integers(rows: Any) -> None:
    with pytest.raises(InputError, match=r"embeds numbers of X .* Pass X as an array of int"):
        proden(of_ids).fit(rows, LABELS)
    with pytest.raises(InputError, match="failed on a few rows"):
        proden(of_ids, scale=None).fit(rows, LABELS)
    cast = nn.Sequential(nn.Identity(), *of_ids())
    cast[0].forward = Tensor.long  # type: ignore[method-assign]
    with pytest.raises(InputError, match="integers of 2"):
        proden(cast).fit(IDS + 2**24, LABELS)


@pytest.mark.parametrize(
    "model",
    [
        RobustPLLClassifier(network=Reader(), adversary=0.1),
        RobustPLLClassifier(network=Reader(), learner="trees"),
        *(PLLClassifier(kind(network=Reader())) for kind in (RobustPllAt, ProdenAdvEns, Papi)),
    ],
    ids=["adversary", "trees", "RobustPllAt", "ProdenAdvEns", "Papi"],
)
def test_what_would_change_ids_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match="needs scaled features; X has ids or several arrays"):
        model.fit(X, LABELS)


@pytest.mark.parametrize(
    "model", [RobustPLLClassifier(), PLLClassifier("proden"), PLLClassifier("pl_knn")]
)
def test_several_arrays_need_a_network_of_ones_own(model: Any) -> None:
    with pytest.raises(InputError, match="only a network of your own takes"):
        model.fit(X, LABELS)


def test_a_method_that_compares_embeddings_learns_ids() -> None:
    method = Pico(network=of_ids, epochs=40, batch_size=30)
    assert PLLClassifier(method, random_state=0).fit(IDS, LABELS).score(IDS, LABELS) > 0.9


def test_attacks_and_onnx_are_refused_and_a_file_needs_its_network(tmp_path: Path) -> None:
    model = PLLClassifier(Auto(network=Reader(), epochs=2, members=2), random_state=0)
    model.fit(X, LABELS)
    with pytest.raises(InputError, match="Attacks move scaled features"):
        model.predict_opinion(X, PGD(0.1))
    with pytest.raises(InputError, match=r"has no ONNX graph.*save\(path\)"):
        model.export_onnx(tmp_path / "model.onnx")
    model.save(tmp_path / "model.pll")
    with pytest.raises(InputError, match=r"Call load\(path, network=\.\.\.\) with your network"):
        load(tmp_path / "model.pll")
    fault = r"does not fit the network that was passed.*Pass the network that it was trained with"
    for wrong in (of_ids, Reader(words=41), lambda: None):
        with pytest.raises(ModelFileError, match=fault) as caught:
            load(tmp_path / "model.pll", network=wrong)
        assert len(str(caught.value).removeprefix(str(tmp_path))) < 400
    (tmp_path / "cut.pll").write_bytes((tmp_path / "model.pll").read_bytes()[:-9])
    with pytest.raises(ModelFileError, match=r"is damaged.*Pass a file that robustpll fit"):
        load(tmp_path / "cut.pll", network=Reader)


def lazy() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("rows", [IDS, IDS / WORDS], ids=["integers", "numbers"])
@pytest.mark.parametrize("network", [lazy(), lazy], ids=["module", "callable"])
def test_lazy_layers_get_their_sizes_from_the_rows(rows: Any, network: Any, tmp_path: Path) -> None:
    if rows.dtype.kind == "f":
        network = lambda: nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(3))  # noqa: E731
    for model in (default(network, epochs=4, early_stopping=True), proden(network)):
        model.fit(rows, LABELS).save(tmp_path / "model.pll")
        probability = load(tmp_path / "model.pll", network=network).predict_proba(rows)
        np.testing.assert_array_equal(probability, model.predict_proba(rows))
    assert model.score(rows, LABELS) > 0.5
    narrow = nn.Sequential(nn.Linear(7, 8), nn.LazyLinear(3))
    with pytest.raises(InputError, match="network failed on a few rows"):
        proden(narrow).fit(IDS / WORDS, LABELS)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:The .grad attribute")
def test_modules_of_torch_jit_are_refused() -> None:
    scripted = torch.jit.trace(nn.Linear(6, 3), torch.zeros(2, 6))  # type: ignore[no-untyped-call]
    for network in (scripted, nn.Sequential(scripted)):
        with pytest.raises(InputError, match=r"module of torch.jit.*from which it was made"):
            proden(network).fit(IDS / WORDS, LABELS)


def test_a_module_that_returns_an_object_can_be_exported(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")

    class Answering(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return {"logits": super().forward(x)}

    rows = np.eye(3)[LABELS]
    method = RobustPll(network=Answering(3, 3), epochs=5)
    model = PLLClassifier(method, random_state=0).fit(rows, LABELS)
    model.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (probability,) = session.run(["probability"], {"X": rows})
    np.testing.assert_allclose(probability, model.predict_proba(rows), atol=1e-5)


class Mixed(nn.Module):
    """The first column is an id, and is embedded after the second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.ids = nn.Linear(2, 8), nn.Embedding(20, 8)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.ids(x[:, 0].long())
        logits: Tensor = self.head(torch.cat([self.numbers(x[:, 1:]), embedded], 1).relu())
        return logits


class Positions(nn.Module):
    """It embeds positions, which do not depend on the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.positions = nn.Linear(1, 8), nn.Embedding(3, 8)
        self.head = nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.values(x[..., None]) + self.positions(torch.arange(3, device=x.device))
        logits: Tensor = self.head(tokens.relu().flatten(1))
        return logits


def test_a_later_embedding_of_scaled_numbers_is_refused_but_not_one_of_positions() -> None:
    rows = np.column_stack([RANDOM.integers(20, size=300), RANDOM.normal(size=(300, 2))])
    parity = rows[:, 0].astype(int) % 2
    for table in (rows, pd.DataFrame(rows), pd.DataFrame(rows.astype(int))):
        with pytest.raises(InputError, match=r"embeds numbers of X as integers.*scale=None"):
            proden(Mixed).fit(table, parity)
    assert proden(Mixed, scale=None).fit(rows, parity).score(rows, parity) > 0.95
    proden(Positions).fit(rows, parity)


def test_fits_in_threads_are_those_of_one_after_the_other() -> None:
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    rows = RANDOM.normal(size=(60, 4)) + np.arange(60)[:, None] % 3
    state = torch.get_rng_state()

    def probability(seed: int) -> np.ndarray:
        model = PLLClassifier(Proden(network=net, epochs=15, batch_size=20), random_state=seed)
        return model.fit(rows, np.arange(60) % 3).predict_proba(rows)

    expected = [probability(seed) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(expected, pool.map(probability, range(6)), strict=True):
            np.testing.assert_array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


class Centred(nn.Module):
    """It keeps a mean outside of what files hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        logits: Tensor = self.layer(x - self.mean)
        return logits


def test_buffers_that_a_file_would_lose_are_refused(tmp_path: Path) -> None:
    rows = RANDOM.normal(size=(60, 4)) + np.arange(60)[:, None] % 3
    model = PLLClassifier(Proden(network=Centred, epochs=3)).fit(rows, np.arange(60) % 3)
    with pytest.raises(InputError, match=r"not saved: training changed the buffer '.*mean'"):
        model.save(tmp_path / "model.pll")
    assert not [*tmp_path.iterdir()]
