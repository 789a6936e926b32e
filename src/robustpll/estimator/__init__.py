"""Scikit-learn estimators, and the parts of a fitted one."""

from robustpll.estimator.classifier import PLLClassifier
from robustpll.estimator.robust import RobustPLLClassifier

__all__ = ["PLLClassifier", "RobustPLLClassifier"]
