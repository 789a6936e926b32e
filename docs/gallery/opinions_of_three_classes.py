import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import RobustPll
from robustpll.plots import plot_opinion_simplex

data = load_iris()
X, y = data.data, data.target_names[data.target]
candidates = Independent(chance=0.4).apply(X[::2], y[::2], random_state=0)
model = PLLClassifier(RobustPll(epochs=200), random_state=0).fit(X[::2], candidates)

fig, ax = plt.subplots(layout="constrained")
plot_opinion_simplex(model, X[1::2], y[1::2], ax=ax)
