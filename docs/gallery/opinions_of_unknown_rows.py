import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import Independent
from robustpll.methods import RobustPllEns
from robustpll.plots import plot_opinion_simplex

X, y = load_digits(return_X_y=True)
known, unknown = y < 8, y >= 8
candidates = Independent(chance=0.2).apply(X[known][:900], y[known][:900], random_state=0)
model = PLLClassifier(RobustPllEns(epochs=60), random_state=0).fit(X[known][:900], candidates)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
plot_opinion_simplex(model, X[known][900:], y[known][900:], ax=left).set_title("digits 0 to 7")
plot_opinion_simplex(model, X[unknown], ax=right).set_title("8 and 9, never seen")
