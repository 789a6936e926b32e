"""Learn a classifier from sets of candidate labels, and know how sure it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robustpll import _moved as _moved

if TYPE_CHECKING:
    from robustpll.attacks import PGD, AutoPGD, Square
    from robustpll.datasets import load_dataset
    from robustpll.datasets.dataset import Dataset
    from robustpll.errors import InputError, ModelFileError, RobustPLLError
    from robustpll.estimator.abstention import Decision
    from robustpll.estimator.classifier import PLLClassifier, RobustPLLClassifier
    from robustpll.estimator.model_file import load
    from robustpll.evaluate.audit import robustness_report
    from robustpll.evaluate.missing_truth import missing_truth_scores
    from robustpll.evaluate.ood import ood_report
    from robustpll.evaluate.reports import calibration_report
    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes
    from robustpll.measures.conformal import ConformalSets
    from robustpll.methods import METHODS
    from robustpll.opinion import Opinion
    from robustpll.tables.read import Table, read_table

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
    "PGD": "attacks",
    "AutoPGD": "attacks",
    "Candidates": "labels.candidates",
    "ConformalSets": "measures.conformal",
    "Dataset": "datasets.dataset",
    "Decision": "estimator.abstention",
    "InputError": "errors",
    "ModelFileError": "errors",
    "Opinion": "opinion",
    "PLLClassifier": "estimator.classifier",
    "RobustPLLClassifier": "estimator.classifier",
    "RobustPLLError": "errors",
    "Square": "attacks",
    "Table": "tables.read",
    "Votes": "labels.votes",
    "calibration_report": "evaluate.reports",
    "load": "estimator.model_file",
    "load_dataset": "datasets",
    "missing_truth_scores": "evaluate.missing_truth",
    "ood_report": "evaluate.ood",
    "read_table": "tables.read",
    "robustness_report": "evaluate.audit",
}


def __getattr__(name: str) -> Any:
    """Import names on first use: torch takes seconds, and `--version` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustpll' has no attribute {name!r}")
    return getattr(import_module(f"robustpll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
