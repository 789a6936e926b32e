import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import Proden
from robustpll.plots import plot_learning_curve

X, y = load_digits(return_X_y=True)
fig, ax = plt.subplots(layout="constrained")
for chance in (0.1, 0.3, 0.5, 0.7):
    candidates = Independent(chance=chance).apply(X[:600], y[:600], random_state=0)
    model = PLLClassifier(Proden(epochs=40), random_state=0).fit(X[:600], candidates)
    plot_learning_curve(model, name=f"{candidates.sizes.mean():.1f} candidates on average", ax=ax)
