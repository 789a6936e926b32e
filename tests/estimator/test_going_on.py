"""`warm_start` and `partial_fit` go on from the present network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch import nn

import robustpll
from robustpll import Candidates, InputError, PLLClassifier
from robustpll.callbacks import EpochState
from robustpll.methods import METHODS, Auto, Cavl, PlKnn, Pop, Proden, ProdenEdl, Pruned, RobustPll

X, LABELS = load_digits(return_X_y=True)
X, LABELS, TEST, TRUTH = X[:400], LABELS[:400], X[400:700], LABELS[400:700]
CHOICE = np.random.default_rng(0).integers(10, size=(400, 2))
SETS = [{int(label), *map(int, row)} for label, row in zip(LABELS, CHOICE, strict=True)]


def warm(method: Any = None, **options: Any) -> PLLClassifier:
    method = Proden(epochs=3) if method is None else method
    return PLLClassifier(method, warm_start=True, random_state=0, **options)


class First:
    """Remembers the parameters after the first epoch."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}

    def on_epoch_end(self, state: EpochState) -> bool:
        self.parameters = state.parameters()
        return True


def weights_of(model: PLLClassifier) -> dict[str, Any]:
    return {name: value.numpy() for name, value in model.fitted_.net.named_parameters()}


def test_a_second_fit_goes_on_and_a_cold_one_does_not() -> None:
    model = warm().fit(X, SETS)
    losses, before = [*model.history_["loss"]], weights_of(model)
    first = First()
    model.set_params(method=Proden(epochs=3, learning_rate=1e-30), callbacks=[first]).fit(X, SETS)
    for name, values in before.items():
        np.testing.assert_array_equal(first.parameters[name], values)
    model.set_params(method=Proden(epochs=3), callbacks=[])
    for _ in range(4):
        losses += [*model.fit(X, SETS).history_["loss"]]
    assert losses[-1] < 0.5 * losses[2]
    cold = model.set_params(warm_start=False).fit(X, SETS)
    np.testing.assert_array_equal(cold.history_["loss"], losses[:3])


def test_more_rows_are_scaled_as_the_first_ones() -> None:
    model = warm().fit(X[:200], SETS[:200])
    scaling = model.features_
    model.fit(X, SETS)
    assert model.features_ is scaling
    assert model.label_weights_.shape == (400, 10)
    with pytest.raises(InputError, match="features"):
        model.fit(X[:, :10], SETS)


def test_label_weights_go_on_where_new_candidates_allow_it() -> None:
    model = warm(Proden(epochs=10)).fit(X, SETS)
    former = model.label_weights_
    reviewed = [*SETS]
    reviewed[0] = {int(former[0].argmax())}  # a person decided
    reviewed[1] = {*range(10)} - SETS[1]  # nothing of the former weights is left
    reviewed[2] = SETS[2] | {*range(5)}  # further candidates
    model.set_params(method=Proden(epochs=1, learning_rate=1e-30))
    tasks: list[Any] = []
    method = model.method
    begin = type(method).begin

    def begun(self: Any, task: Any) -> Any:
        state = begin(self, task)
        tasks.append(state.rows["label_weights"][0].clone())
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(method), "begin", begun)
        model.fit(X, Candidates.of(reviewed, classes=range(10)))
        start = tasks.pop()
        own = model.predict_proba(X[:300]) * Candidates.of(reviewed, classes=range(10)).matrix[:300]
        model.fit(X[:300], reviewed[:300])
        prior = tasks.pop()
    np.testing.assert_allclose(start[0], np.eye(10)[former[0].argmax()])
    left = [c for c in range(10) if c not in SETS[1]]
    np.testing.assert_allclose(start[1, left], 1 / len(left))
    np.testing.assert_allclose(start[2], former[2], atol=1e-6)
    np.testing.assert_allclose(start[3:], former[3:], atol=1e-6)
    np.testing.assert_allclose(prior, own / own.sum(-1, keepdims=True), atol=1e-5)


def test_other_rows_and_loaded_models_start_with_what_the_network_predicts(tmp_path: Path) -> None:
    model = warm(Proden(epochs=30)).fit(X, SETS)
    order = np.random.default_rng(1).permutation(len(X))
    model.save(tmp_path / "model.pll")
    again = robustpll.load(tmp_path / "model.pll").fit(X, SETS)
    moved = model.fit(X[order], [SETS[row] for row in order])
    for fitted, truth in ((again, LABELS), (moved, LABELS[order])):
        assert (fitted.labels_ == truth).mean() > 0.97


def test_classes_may_be_fewer_but_not_new() -> None:
    model = warm().fit(X, SETS)
    few = LABELS < 5
    model.fit(X[few], LABELS[few])
    assert [*model.classes_] == [*range(10)]
    before = vars(model).copy()
    with pytest.raises(InputError, match="class"):
        model.fit(X, LABELS + 1)
    assert all(vars(model)[name] is before[name] for name in before)


def test_a_loaded_model_goes_on(tmp_path: Path) -> None:
    model = warm(RobustPll(epochs=5)).fit(X, SETS)
    model.save(tmp_path / "model.pll")
    again = robustpll.load(tmp_path / "model.pll", device="cpu")
    assert again.warm_start
    assert again.fit(X, SETS).history_["loss"][0] < 0.9 * model.history_["loss"][0]


def test_early_stopping_and_checkpoints_go_on_too(tmp_path: Path) -> None:
    def fail(state: EpochState) -> None:
        if state.epoch == 2:
            raise RuntimeError("interrupted")

    plain, other = (warm(RobustPll(epochs=3, averaged=0.5), watch=0.2) for _ in range(2))
    for model in (plain, other):
        model.fit(X, SETS)
    failing: Any = type("Failing", (), {"on_epoch_end": lambda _, state: fail(state)})()
    other.set_params(callbacks=[failing], checkpoint=tmp_path / "state")
    with pytest.raises(RuntimeError, match="interrupted"):
        other.fit(X, SETS)
    other.set_params(callbacks=[]).fit(X, SETS, resume=tmp_path / "state")
    np.testing.assert_array_equal(other.predict_proba(TEST), plain.fit(X, SETS).predict_proba(TEST))
    with pytest.raises(InputError, match="differ: start"):  # another network to go on from
        other.fit(X, SETS, resume=tmp_path / "state")


@pytest.mark.parametrize("method", [Auto(), PlKnn(), ProdenEdl(), Pruned()], ids=lambda m: m.name)
def test_methods_that_cannot_go_on_say_what_can(method: Any) -> None:
    for call, what in ((warm(method).fit, "warm_start"), (warm(method).partial_fit, "partial_fit")):
        with pytest.raises(InputError, match=f"{what} is not possible with .*'robust_pll'"):
            call(X, SETS)


def test_another_network_is_refused() -> None:
    model = warm().fit(X, SETS)
    for method in (Proden(network="small"), Proden(members=2)):
        with pytest.raises(InputError, match="other layers"):
            model.set_params(method=method).fit(X, SETS)
    neighbours = PLLClassifier("pl_knn").fit(X, SETS).set_params(method="proden", warm_start=True)
    for call in (neighbours.fit, neighbours.partial_fit):
        with pytest.raises(InputError, match=r"was fitted by .*which cannot go on"):
            call(X, SETS)


def with_dropout(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, k))


@pytest.mark.parametrize(
    "method",
    [
        Proden(batch_size=50),
        RobustPll(batch_size=50, averaged=0.5),
        Cavl(epochs=60, batch_size=50, schedule="one-cycle", learning_rate=0.003),
        Proden(batch_size=50, members=2, network=with_dropout, momentum=0.9, learning_rate=0.1),
    ],
    ids=["Proden", "RobustPll", "Cavl", "dropout"],
)
def test_partial_fit_learns_from_parts_of_the_rows(method: Any) -> None:
    model = PLLClassifier(method, random_state=0)
    for epoch in range(30):
        for part in (slice(0, None, 2), slice(1, None, 2)):
            model.partial_fit(X[part], SETS[part], classes=range(10))
        assert len(model.history_["loss"]) == 2 * (epoch + 1)
    assert model.label_weights_.shape == (200, 10)
    assert model.score(TEST, TRUTH) > 0.65  # a fit of 30 epochs by Proden: 0.81
    assert model.decide(TEST, coverage=0.5).coverage == pytest.approx(0.5, abs=0.01)


def test_partial_fits_are_the_epochs_of_a_fit() -> None:
    """The first call is a fit of one epoch; after a fit, rows come in another order."""
    one = PLLClassifier(Proden(epochs=1), random_state=0).fit(X, SETS)
    model = PLLClassifier(Proden(epochs=50), random_state=0).partial_fit(X, SETS)
    np.testing.assert_array_equal(model.predict_proba(TEST), one.predict_proba(TEST))
    moments = model.optimizer_
    assert {int(value) for name, value in moments.items() if name.endswith("step")} == {2}
    model.partial_fit(X, SETS)
    steps = {int(value) for name, value in model.optimizer_.items() if name.endswith("step")}
    assert steps == {4}  # Adam goes on
    fitted = one.fit(X, SETS)
    loss = fitted.history_["loss"][-1]
    assert fitted.partial_fit(X, SETS).history_["loss"][-1] < loss


def test_partial_fit_refuses_what_it_cannot_learn() -> None:
    model = PLLClassifier("proden").partial_fit(X, SETS)
    with pytest.raises(InputError, match="classes must be those of the first call"):
        model.partial_fit(X, SETS, classes=["a", "b"])
    with pytest.raises(InputError, match="class"):
        model.partial_fit(X, LABELS + 5)
    with pytest.raises(InputError, match="minimum of 2"):
        model.partial_fit(X[:1], SETS[:1])
    for name in ("pop", "crosel", "valen", "pico", "papi", "dirk", "alim"):
        with pytest.raises(InputError, match="remembers several epochs"):
            PLLClassifier(name).partial_fit(X, SETS)
    assert not Pop.incremental


def test_methods_with_a_memory_are_not_incremental(task_of: Any) -> None:
    """Row state of earlier epochs is lost between two calls; shares of classes are not."""
    task = task_of(0)
    for kind in METHODS.values():
        method: Any = kind()
        if getattr(method, "incremental", False) and kind is not ProdenEdl:
            memory = method.spread(1, like=task.prior).begin(task).memory
            assert memory.keys() <= {"class_shares"}, kind


def test_decide_knows_the_rows_of_all_parts() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = np.array([[0, 0], [2, 0], [0, 2]])[y] + rng.normal(size=(600, 2)) / 3
    model = PLLClassifier(Proden(epochs=30), random_state=0)
    for _ in range(3):
        for part in np.array_split(np.argsort(y), 3):  # one class after another
            model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.reference_ is not None
    assert model.decide(X, coverage=1.0).coverage > 0.95
    assert (model.decide(X + 1000, coverage=1.0).reason == "unlike the training data").all()


def test_a_dict_is_no_table() -> None:
    model = PLLClassifier("pl_knn").fit(np.eye(3), [0, 1, 2])
    with pytest.raises(InputError, match="X is a dict"):
        model.predict({"a": [1.0], "b": [0.0], "c": [0.0]})


def test_thresholds_of_a_former_model_are_not_used_silently() -> None:
    X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    model = PLLClassifier(Proden(epochs=3), random_state=0).partial_fit(X, y)
    model.calibrate_decisions(X, y)
    with pytest.warns(UserWarning, match="Call calibrate_decisions again"):
        model.partial_fit(X, y)
    assert model.trial_ is None
