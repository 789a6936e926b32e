import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import RobustPll
from robustpll.plots import plot_opinion_simplex

data = load_breast_cancer()
X, y = data.data, data.target_names[data.target]
candidates = Independent(chance=0.4).apply(X[:200], y[:200], random_state=0)
model = PLLClassifier(RobustPll(epochs=60), random_state=0).fit(X[:200], candidates)

fig, ax = plt.subplots(layout="constrained")
plot_opinion_simplex(model, X[200:], y[200:], ax=ax)
