"""Import paths that version 0.1 documented work for one release, with a warning."""

import importlib
import sys
from pathlib import Path

import pytest

from robustpll._moved import MOVED
from robustpll.estimator.classifier import FORMER_PARAMETERS

NAMES = {
    "candidates": ["Candidates", "Votes"],
    "data": ["load_dataset"],
    "data.noise": ["Uniform", "ClassDependent", "InstanceDependent", "Flip"],
    "data.ood": ["ood_rows", "hold_out"],
    "data.problem": ["Problem"],
    "engine.task": ["Batch", "State", "Task"],
    "evaluate.calibration": [
        "CalibrationReport",
        "Reliability",
        "calibration_of",
        "calibration_report",
        "reliability",
    ],
    "evaluate.conformal": ["ConformalSets", "least_probability"],
    "evaluate.faulty": ["missing_truth_scores", "suspicion"],
    "evaluate.label_free": ["SCORERS", "LabelFreeScorer", "approximated_accuracy", "covering_rate"],
    "evaluate.metrics": ["accuracy", "cdf_area", "mean_std", "signed_ks", "signed_mmd"],
    "evaluate.selection": ["DecisionReport", "RiskCoverage", "decision_report", "risk_coverage"],
    "evaluate.significance": ["bold", "paired_p", "single_best"],
    "methods.maths": ["covering", "normalize"],
}


@pytest.mark.parametrize("former", MOVED)
def test_a_former_path_warns_and_holds_its_names(former: str) -> None:
    sys.modules.pop(f"robustpll.{former}", None)
    if former.startswith("data."):
        sys.modules.pop("robustpll.data", None)
        with pytest.warns(DeprecationWarning, match="import from robustpll.datasets"):
            importlib.import_module("robustpll.data")
    with pytest.warns(DeprecationWarning, match=rf"robustpll\.{former} has moved: import from"):
        module = importlib.import_module(f"robustpll.{former}")
    assert [name for name in NAMES[former] if not hasattr(module, name)] == []


def test_the_page_on_upgrading_names_all_that_moved_or_goes() -> None:
    page = (Path(__file__).parents[1] / "docs" / "upgrading.md").read_text()
    for former, homes in MOVED.items():
        successors = ", ".join(f"`robustpll.{home}`" for home in homes)
        assert f"| `robustpll.{former}` | {successors} |" in page
    assert f"({', '.join(FORMER_PARAMETERS)})" in page
