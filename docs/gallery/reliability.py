import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import RobustPll
from robustpll.plots import plot_reliability

X, y = load_digits(return_X_y=True)
candidates = Independent(chance=0.3).apply(X[:600], y[:600], random_state=0)
model = PLLClassifier(RobustPll(epochs=30), random_state=0).fit(X[:600], candidates)

fig, ax = plt.subplots(layout="constrained")
plot_reliability(model, X[1200:], y[1200:], name="as trained", ax=ax)
model.recalibrate(X[600:1200], y[600:1200])
plot_reliability(model, X[1200:], y[1200:], name="recalibrated", ax=ax)
