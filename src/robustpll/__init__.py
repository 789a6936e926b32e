"""Learn a classifier from sets of candidate labels, and know how sure it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustpll.candidates import Candidates, Votes
    from robustpll.data import load_dataset
    from robustpll.data.dataset import Dataset
    from robustpll.data.table import Table, read_table
    from robustpll.decisions import Decision
    from robustpll.engine.apgd import AutoPGD
    from robustpll.engine.attack import PGD
    from robustpll.engine.square import Square
    from robustpll.errors import InputError, ModelFileError, RobustPLLError
    from robustpll.estimator import PLLClassifier
    from robustpll.evaluate.audit import robustness_report
    from robustpll.evaluate.calibration import calibration_report
    from robustpll.evaluate.conformal import ConformalSets
    from robustpll.evaluate.faulty import missing_truth_scores
    from robustpll.evaluate.ood import ood_report
    from robustpll.methods import METHODS
    from robustpll.model_file import load
    from robustpll.opinion import Opinion
    from robustpll.robust_estimator import RobustPLLClassifier

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PGD",
    "AutoPGD",
    "Candidates",
    "ConformalSets",
    "Dataset",
    "Decision",
    "InputError",
    "ModelFileError",
    "Opinion",
    "PLLClassifier",
    "RobustPLLClassifier",
    "RobustPLLError",
    "Square",
    "Table",
    "Votes",
    "__version__",
    "calibration_report",
    "load",
    "load_dataset",
    "missing_truth_scores",
    "ood_report",
    "read_table",
    "robustness_report",
]

_HOMES = {
    "METHODS": "methods",
    "PGD": "engine.attack",
    "AutoPGD": "engine.apgd",
    "Candidates": "candidates",
    "ConformalSets": "evaluate.conformal",
    "Dataset": "data.dataset",
    "Decision": "decisions",
    "InputError": "errors",
    "ModelFileError": "errors",
    "Opinion": "opinion",
    "PLLClassifier": "estimator",
    "RobustPLLClassifier": "robust_estimator",
    "RobustPLLError": "errors",
    "Square": "engine.square",
    "Table": "data.table",
    "Votes": "candidates",
    "calibration_report": "evaluate.calibration",
    "load": "model_file",
    "load_dataset": "data",
    "missing_truth_scores": "evaluate.faulty",
    "ood_report": "evaluate.ood",
    "read_table": "data.table",
    "robustness_report": "evaluate.audit",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for: torch takes seconds, and `robustpll --version` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustpll' has no attribute {name!r}")
    return getattr(import_module(f"robustpll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
