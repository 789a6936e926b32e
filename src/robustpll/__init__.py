"""Learn a classifier from sets of candidate labels, and know how sure it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robustpll import _moved as _moved

if TYPE_CHECKING:
    from robustpll.attacks import PGD, AutoPGD, Square
    from robustpll.datasets import load_dataset
    from robustpll.datasets.dataset import Dataset
    from robustpll.engine.distributed import distributed
    from robustpll.errors import InputError, ModelFileError, RobustPLLError
    from robustpll.estimator.abstention import Decision
    from robustpll.estimator.classifier import PLLClassifier, RobustPLLClassifier
    from robustpll.estimator.model_file import load
    from robustpll.evaluate.audit import robustness_report
    from robustpll.evaluate.compare import Comparison, compare
    from robustpll.evaluate.ood import ood_report
    from robustpll.evaluate.reports import calibration_report, missing_truth_scores
    from robustpll.labels.candidates import Candidates
    from robustpll.labels.spelling import label_variants
    from robustpll.labels.votes import Not, Sure, Unsure, Votes
    from robustpll.measures.conformal import ConformalSets
    from robustpll.methods import METHODS
    from robustpll.opinion import Opinion
    from robustpll.tables.read import Table, read_table
    from robustpll.tables.stream import ParquetRows

__version__ = "0.2.0"
__all__ = ["METHODS", "Candidates", "Decision", "Opinion", "PLLClassifier", "RobustPLLClassifier"]
__all__ += ["Dataset", "ParquetRows", "Table", "Votes", "load", "load_dataset", "read_table"]
__all__ += ["PGD", "AutoPGD", "Square", "ood_report", "robustness_report"]
__all__ += ["Comparison", "ConformalSets", "calibration_report", "compare", "missing_truth_scores"]
__all__ += ["Not", "Sure", "Unsure", "distributed", "label_variants"]
__all__ += ["InputError", "ModelFileError", "RobustPLLError", "__version__"]

_NAMES = {  # of each module, imported on first use
    "attacks": ("PGD", "AutoPGD", "Square"),
    "datasets": ("load_dataset",),
    "datasets.dataset": ("Dataset",),
    "engine.distributed": ("distributed",),
    "errors": ("InputError", "ModelFileError", "RobustPLLError"),
    "estimator.abstention": ("Decision",),
    "estimator.classifier": ("PLLClassifier", "RobustPLLClassifier"),
    "estimator.model_file": ("load",),
    "evaluate.audit": ("robustness_report",),
    "evaluate.compare": ("Comparison", "compare"),
    "evaluate.ood": ("ood_report",),
    "evaluate.reports": ("calibration_report", "missing_truth_scores"),
    "labels.candidates": ("Candidates",),
    "labels.spelling": ("label_variants",),
    "labels.votes": ("Not", "Sure", "Unsure", "Votes"),
    "measures.conformal": ("ConformalSets",),
    "methods": ("METHODS",),
    "opinion": ("Opinion",),
    "tables.read": ("Table", "read_table"),
    "tables.stream": ("ParquetRows",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import names on first use: torch takes seconds, and `--version` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustpll' has no attribute {name!r}")
    return getattr(import_module(f"robustpll.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
