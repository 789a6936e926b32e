import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import Proden
from robustpll.plots import plot_risk_coverage

X, y = make_classification(3000, 12, n_informative=8, n_classes=4, class_sep=1.2, random_state=0)
candidates = Independent(chance=0.3).apply(X[:1000], y[:1000], random_state=0)
model = PLLClassifier(Proden(epochs=60), random_state=0).fit(X[:1000], candidates)

fig, ax = plt.subplots(layout="constrained")
model.calibrate_decisions(X[1000:2000], y[1000:2000], confidence=0.9)
plot_risk_coverage(model, X[2000:], y[2000:], error=0.1, ax=ax)
