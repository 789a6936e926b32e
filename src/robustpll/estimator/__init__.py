"""The scikit-learn estimators, and what belongs to a fitted one."""
