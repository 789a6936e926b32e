import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import Flip, Independent
from robustpll.methods import Proden
from robustpll.plots import plot_learning_curve

X, y = load_digits(return_X_y=True)
fig, ax = plt.subplots(layout="constrained")
for name, noise in {
    "all sets have the truth": Independent(chance=0.3),
    "30 % miss it": Flip(0.3, Independent(chance=0.3)),
}.items():
    candidates = noise.apply(X[:900], y[:900], random_state=0)
    model = PLLClassifier(Proden(epochs=60), watch=0.2, random_state=0).fit(X[:900], candidates)
    plot_learning_curve(model, measure="covering_rate", name=name, ax=ax)
