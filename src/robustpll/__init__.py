"""Learn a classifier from sets of candidate labels, and know how sure it is."""

from robustpll.candidates import Candidates, Votes
from robustpll.errors import InputError, ModelFileError, RobustPLLError
from robustpll.estimator import PLLClassifier, RobustPLLClassifier
from robustpll.methods import METHODS
from robustpll.model_file import load
from robustpll.opinion import Opinion

__version__ = "0.1.0.dev0"

__all__ = [
    "METHODS",
    "Candidates",
    "InputError",
    "ModelFileError",
    "Opinion",
    "PLLClassifier",
    "RobustPLLClassifier",
    "RobustPLLError",
    "Votes",
    "__version__",
    "load",
]
