import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import Proden, Wrapped
from robustpll.plots import plot_reliability

X, y = make_classification(2400, 12, n_informative=8, n_classes=4, flip_y=0.1, random_state=0)
candidates = Independent(chance=0.3).apply(X[:1200], y[:1200], random_state=0)
fig, ax = plt.subplots(layout="constrained")
forest = Wrapped("random_forest", labels="majority")
for name, method in {"Proden": Proden(epochs=60), "random forest": forest}.items():
    model = PLLClassifier(method, random_state=0).fit(X[:1200], candidates)
    plot_reliability(model, X[1200:], y[1200:], bins=10, name=name, ax=ax)
