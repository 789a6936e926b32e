"""Learn a classifier from sets of candidate labels, and know how sure it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robustpll import _moved as _moved

if TYPE_CHECKING:
    from robustpll.attacks import PGD as PGD
    from robustpll.attacks import AutoPGD as AutoPGD
    from robustpll.attacks import Square as Square
    from robustpll.datasets import load_dataset as load_dataset
    from robustpll.datasets.dataset import Dataset as Dataset
    from robustpll.errors import InputError as InputError
    from robustpll.errors import ModelFileError as ModelFileError
    from robustpll.errors import RobustPLLError as RobustPLLError
    from robustpll.estimator.abstention import Decision as Decision
    from robustpll.estimator.classifier import PLLClassifier as PLLClassifier
    from robustpll.estimator.classifier import RobustPLLClassifier as RobustPLLClassifier
    from robustpll.estimator.model_file import load as load
    from robustpll.evaluate.audit import robustness_report as robustness_report
    from robustpll.evaluate.ood import ood_report as ood_report
    from robustpll.evaluate.reports import calibration_report as calibration_report
    from robustpll.evaluate.reports import missing_truth_scores as missing_truth_scores
    from robustpll.labels.candidates import Candidates as Candidates
    from robustpll.labels.votes import Votes as Votes
    from robustpll.measures.conformal import ConformalSets as ConformalSets
    from robustpll.methods import METHODS as METHODS
    from robustpll.opinion import Opinion as Opinion
    from robustpll.tables.read import Table as Table
    from robustpll.tables.read import read_table as read_table

__version__ = "0.1.0"

_NAMES = {  # of each module, imported on first use
    "attacks": ("PGD", "AutoPGD", "Square"),
    "datasets": ("load_dataset",),
    "datasets.dataset": ("Dataset",),
    "errors": ("InputError", "ModelFileError", "RobustPLLError"),
    "estimator.abstention": ("Decision",),
    "estimator.classifier": ("PLLClassifier", "RobustPLLClassifier"),
    "estimator.model_file": ("load",),
    "evaluate.audit": ("robustness_report",),
    "evaluate.ood": ("ood_report",),
    "evaluate.reports": ("calibration_report", "missing_truth_scores"),
    "labels.candidates": ("Candidates",),
    "labels.votes": ("Votes",),
    "measures.conformal": ("ConformalSets",),
    "methods": ("METHODS",),
    "opinion": ("Opinion",),
    "tables.read": ("Table", "read_table"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_HOMES)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    """Import names on first use: torch takes seconds, and `--version` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustpll' has no attribute {name!r}")
    return getattr(import_module(f"robustpll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
