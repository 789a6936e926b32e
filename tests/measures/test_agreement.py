"""Agreement of annotators: published examples, and limits."""

import numpy as np
import pytest

from robustpll.measures.agreement import fleiss_kappa, krippendorff_alpha

# Fleiss (1971), as in his table: ten patients, fourteen raters, five diagnoses
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
# Krippendorff (2011): four observers, twelve units, some answers missing; nominal alpha 0.743
OBSERVERS = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]


def counts(observers: list[str]) -> np.ndarray:
    cells = np.array([line.split() for line in observers]).T
    return np.stack([(cells == str(label)).sum(-1) for label in range(1, 6)], -1)


def test_published_examples() -> None:
    assert fleiss_kappa(np.array(FLEISS)) == pytest.approx(0.210, abs=5e-4)
    assert krippendorff_alpha(counts(OBSERVERS)) == pytest.approx(0.743, abs=5e-4)


@pytest.mark.parametrize("measure", [fleiss_kappa, krippendorff_alpha])
def test_limits(measure: object) -> None:
    assert callable(measure)
    assert measure(np.array([[3, 0], [0, 2], [4, 0]])) == 1
    assert np.isnan(measure(np.array([[1, 0], [0, 1]])))  # nobody answered twice
    assert np.isnan(measure(np.array([[2, 0], [3, 0]])))  # one class
    random = np.random.default_rng(0).multinomial(5, [0.5, 0.3, 0.2], size=20_000)
    assert measure(random) == pytest.approx(0, abs=0.01)
