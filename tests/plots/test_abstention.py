"""Pictures of trust show what they are given."""

from typing import Any

import numpy as np
import pytest

from robustpll import InputError
from robustpll.measures.calibration import reliability
from robustpll.measures.selection import risk_coverage
from robustpll.plots.abstention import reliability_picture, risk_coverage_curve
from robustpll.plots.style import picture_bytes

RELIABILITY = reliability([0.2, 0.4, 0.6, 1.0], [0, 0, 1, 0], bins=2)
CURVE = risk_coverage([0.9, 0.8, 0.7], [1, 0, 1])


def test_lines_pass_through_the_numbers() -> None:
    honest, drawn = reliability_picture({"$x$": RELIABILITY}).axes[0].lines
    np.testing.assert_allclose(drawn.get_xydata(), [[0.3, 0], [0.8, 0.5]])
    np.testing.assert_allclose(honest.get_xydata(), [[0, 0], [1, 1]])
    (drawn,) = risk_coverage_curve({"mine": CURVE}).axes[0].lines
    np.testing.assert_allclose(
        drawn.get_xydata(), 100 * np.array([[1 / 3, 0], [2 / 3, 1 / 2], [1, 1 / 3]])
    )


def test_pictures_are_drawn() -> None:
    for figure in (reliability_picture({"_a$": RELIABILITY}), risk_coverage_curve({"b": CURVE})):
        assert picture_bytes(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "found", [{}, [RELIABILITY], {"a": CURVE}, {str(name): RELIABILITY for name in range(7)}]
)
def test_other_things_are_refused(found: Any) -> None:
    with pytest.raises(InputError, match="1 to 6 names to Reliability"):
        reliability_picture(found)
