import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import Proden, ProdenEns, RobustPll
from robustpll.plots import plot_risk_coverage

X, y = make_classification(2400, 12, n_informative=8, n_classes=4, random_state=0)
candidates = Independent(chance=0.3).apply(X[:1200], y[:1200], random_state=0)
fig, ax = plt.subplots(layout="constrained")
for method in (Proden(epochs=60), ProdenEns(epochs=60), RobustPll(epochs=60)):
    model = PLLClassifier(method, random_state=0).fit(X[:1200], candidates)
    plot_risk_coverage(model, X[1200:], y[1200:], ax=ax)
