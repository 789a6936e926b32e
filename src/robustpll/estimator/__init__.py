"""Scikit-learn estimators, and the parts of a fitted one."""

from robustpll.estimator.classifier import PLLClassifier, RobustPLLClassifier

__all__ = ["PLLClassifier", "RobustPLLClassifier"]
