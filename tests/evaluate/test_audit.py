"""An audit finds the worst case, and says when it should not be trusted."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from robustpll import PGD, PLLClassifier
from robustpll.attacks import Square
from robustpll.engine.data import Rows, Task
from robustpll.errors import InputError
from robustpll.evaluate.audit import (
    TREES,
    Audit,
    RobustnessReport,
    report_of_run,
    robustness_report,
)
from robustpll.evaluate.ood import rows_of
from robustpll.methods import Auto, PlKnn, Proden, ProdenEns, RobustPll

QUICK: dict[str, Any] = {"steps": 8, "restarts": 1, "queries": 20, "twin_epochs": 2}
EPSILONS = (0.05, 0.1, 0.2)
NAMES = np.array([f"digit {number}" for number in range(10)])


@pytest.fixture(scope="module")
def data(digits: tuple[np.ndarray, ...], candidates: np.ndarray) -> Any:
    """Few training rows with candidates, and test rows with labels by name."""
    return digits[0][:400], candidates[:400], digits[1][:80], NAMES[digits[3][:80]]


def learned(method: Any, data: Any) -> PLLClassifier:
    X, candidates, *_ = data
    return PLLClassifier(method, random_state=0).fit(X, [set(NAMES[row]) for row in candidates])


@pytest.fixture(scope="module")
def model(data: Any) -> PLLClassifier:
    return learned(Proden(epochs=20), data)


@pytest.fixture(scope="module")
def plain(model: PLLClassifier, data: Any) -> RobustnessReport:
    return robustness_report(model, *data[2:], EPSILONS, **QUICK)


def test_the_worst_case_is_below_every_attack_and_falls(
    plain: RobustnessReport, model: PLLClassifier, data: Any
) -> None:
    _, _, X, y = data
    assert plain.rows == len(y)
    assert plain.clean == pytest.approx(model.score(X, y))
    assert list(plain.worst) == sorted(plain.worst, reverse=True)
    for curve in plain.attacks.values():
        pairs = zip(plain.worst, curve, strict=True)
        assert all(worst <= right <= plain.clean for worst, right in pairs)
    published = model.classes_[model.predict_opinion(X, PGD(0.2)).predicted()]
    assert plain.worst[-1] < (published == y).mean() - 0.2
    assert plain.worst[-1] < 0.1
    assert plain.unbounded == 0
    assert plain.zero_gradients == {"float32": 0.0, "float64": 0.0}
    assert not plain.warnings
    truth = torch.tensor(np.searchsorted(model.classes_, y))[None]
    withstood = Audit(EPSILONS, **QUICK).withstood(model.fitted_, rows_of(model, X), truth)
    assert tuple(withstood.double().mean((1, 2)).tolist()) == pytest.approx(plain.worst)
    assert (withstood <= torch.from_numpy(model.predict(X) == y)).all()


def test_evidential_methods_are_attacked_by_their_own_loss(data: Any) -> None:
    model = learned(RobustPll(epochs=20), data)
    report = robustness_report(model, *data[2:], (0.05,), **QUICK)
    assert report.attacks["evidential"][0] < report.clean


def test_masked_gradients_are_named(data: Any) -> None:
    model = learned(Proden(epochs=20), data)
    with torch.no_grad():
        for parameter in model.fitted_.net.output.parameters():
            parameter.mul_(1e4)
    report = robustness_report(model, *data[2:], (0.2,), **QUICK)
    assert report.zero_gradients["float32"] > 0.9
    assert any("exactly 0 in float32" in warning for warning in report.warnings)
    assert report.attacks["margin"][-1] < 0.1 < report.attacks["cross-entropy"][-1]


def test_methods_without_gradients_are_audited_too(data: Any) -> None:
    _, _, X, y = data
    model = learned(PlKnn(), data)
    report = robustness_report(model, X, y, (0.05, 0.2), **QUICK | {"queries": 100})
    assert set(report.attacks) == {"square", "transfer"}
    assert report.zero_gradients == {}
    assert report.worst[1] < report.clean - 0.05
    with pytest.raises(InputError, match=r"no gradient.*Square"):
        model.predict_opinion(X, PGD(0.1))
    attacked = model.predict_opinion(X, Square(0.2, queries=100), y).predicted()
    assert (model.classes_[attacked] == y).mean() < report.clean


@pytest.mark.parametrize("learner", ["network", "trees", "auto"])
def test_networks_of_the_default_method_are_attacked_and_trees_see_the_same_rows(
    learner: Any, data: Any
) -> None:
    X, y = data[2:]
    model = PLLClassifier(Auto(learner, epochs=40, members=5), random_state=0).fit(X, y)
    report = robustness_report(model, X, y, (0.05, 0.2), **QUICK | {"queries": 20})
    by_gradient = {"margin", "margin of logits", "cross-entropy", "evidential"}
    expected = {"square", "transfer"} | (set() if learner == "trees" else by_gradient)
    assert set(report.attacks) == expected
    assert set(report.zero_gradients) == (set() if learner == "trees" else {"float32", "float64"})
    assert (TREES in report.warnings) == (learner == "auto")
    assert report.worst[1] <= report.worst[0] <= report.clean


def test_features_may_be_fixed_or_move_by_distances_of_their_own(
    plain: RobustnessReport, model: PLLClassifier, data: Any
) -> None:
    def worst(epsilon: float = 0.1, **options: Any) -> float:
        return robustness_report(model, *data[2:], (epsilon,), **options, **QUICK).worst[0]

    still = np.arange(64) < 32
    half = worst(fixed=still)
    assert plain.worst[1] < half < worst(fixed=np.ones(64, bool)) == plain.clean
    assert worst(per_feature=np.where(still, 0.0, 1.0)) == half
    assert worst(0.2, per_feature=0.5) == worst()


def test_all_of_a_range_is_tried_however_wide(model: PLLClassifier, data: Any) -> None:
    wide, narrow = (
        robustness_report(model, *data[2:], (0.01,), clip=clip, **QUICK)
        for clip in ((-3.0, 3.0), (0.4999, 0.5))
    )
    assert wide.unbounded == 0
    assert narrow.unbounded >= narrow.worst[0] > 0


def test_rows_may_be_a_table() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.random(90), "kind": np.repeat(["a", "b", "c"], 30)})
    y = np.repeat(["x", "y", "z"], 30)
    model = PLLClassifier(Proden(epochs=10), random_state=0).fit(X, y)
    assert robustness_report(model, X, y, (0.01, 1.0), **QUICK).worst == (1.0, 0.0)


def test_runs_of_a_bundle_are_audited_as_each_alone(digits: Any, candidates: Any) -> None:
    rows = Rows.of(torch.from_numpy(digits[0][:60]), torch.arange(60).view(2, 30))
    sets = torch.from_numpy(candidates[:60]).view(2, 30, 10)
    truth = torch.from_numpy(digits[2][:60]).view(2, 30)
    audit = Audit((0.05, 0.1), **QUICK)
    method = ProdenEns(epochs=2, members=2)
    bundle = audit.reports(method.fit(Task.of(rows, sets, seeds=(4, 5))), rows, truth)
    for run, together in enumerate(bundle):
        part = slice(run, run + 1)
        fitted = method.fit(Task.of(rows.part(part), sets[part], seeds=(4 + run,)))
        (alone,) = audit.reports(fitted, rows.part(part), truth[part])
        assert alone == together


def report_of(
    attacks: dict[str, list[list[int]]], epsilons: tuple[float, ...] = (0.1, 0.2), **others: Any
) -> RobustnessReport:
    """Ten rows, right where they are not named as fooled, for two epsilons."""
    right = {name: torch.ones(2, 10, dtype=torch.bool) for name in attacks}
    for name, fooled in attacks.items():
        for epsilon, rows in enumerate(fooled):
            right[name][epsilon, rows] = False
    nothing = torch.zeros(10, dtype=torch.bool)
    zeros = {"float32": nothing, "float64": nothing}
    settings = {"unbounded": nothing, "zero_gradients": zeros} | others
    return report_of_run(epsilons, ~nothing, right, chance=0.1, **settings)


SOUND = {"margin": [[0, 1], [0, 1, 2]], "square": [[0], [0, 1]], "transfer": [[], [5]]}


@pytest.mark.parametrize(
    ("attacks", "others", "reason"),
    [
        (SOUND, {}, None),
        ({"square": [[0, 1, 2], [0, 1, 2]], "transfer": [[], [5]]}, {}, None),
        (SOUND | {"transfer": [[], [5, 6]]}, {}, "by the attack 'transfer' but by no"),
        (SOUND | {"square": [[7, 8], [0]]}, {}, "At epsilon 0.1, 20.0% of the rows"),
        (SOUND | {"margin": [[0, 1, 2], [1]]}, {}, "'margin' does less harm at 0.2"),
        (SOUND, {"unbounded": torch.arange(10) < 2}, "20.0% of the rows are right wherever"),
        (SOUND, {"zero_gradients": {"float32": torch.arange(10) < 3}}, "30.0% .* in float32"),
    ],
)
def test_oddities_are_named(attacks: Any, others: Any, reason: str | None) -> None:
    report = report_of(attacks, **others)
    if reason is None:
        assert report.warnings == ()
    else:
        assert any(pd.Series(report.warnings).str.contains(reason))
        assert f"Warning: {report.warnings[0]}" in str(report)


def test_rows_count_as_right_only_if_all_attacks_failed_and_the_report_says_so() -> None:
    report = report_of({"margin": [[0], [1]], "<b>": [[], [2, 3]]}, (0.1, 0.25))
    assert report.worst == (0.9, 0.6)
    assert report.attacks == {"margin": (0.9, 0.9), "<b>": (1.0, 0.8)}
    assert str(report).splitlines()[1:4] == [
        "epsilon          0    0.1   0.25",
        "all attacks  100.0   90.0   60.0",
        "margin       100.0   90.0   90.0",
    ]
    page = report._repr_html_()
    assert "<td>60.0</td>" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilons": (0.2, 0.1)}, "increasing"),
        ({"epsilons": ()}, "increasing"),
        ({"epsilons": (0.0, 0.1)}, "positive"),
        ({"epsilons": "far"}, "positive"),
        ({"epsilons": -0.1}, "positive"),
        ({"steps": 0}, "'steps' of AutoPGD must be"),
        ({"queries": 0}, "'queries' of Square must be"),
        ({"twin_epochs": 0}, "twin_epochs"),
        ({"per_feature": -1.0}, "per_feature must be"),
        ({"per_feature": "far"}, "per_feature must be"),
        ({"y": [{"digit 0"}] * 80}, "one true label"),
        ({"y": ["digit 0"] * 3}, "80 rows"),
        ({"y": ["digit 11"] * 80}, "digit 11"),
        ({"model": LogisticRegression()}, "got LogisticRegression"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: PLLClassifier, data: Any, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        robustness_report(**{"model": model, "X": data[2], "y": data[3]} | wrong)
