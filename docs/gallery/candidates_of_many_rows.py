import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import ClassDependent
from robustpll.methods import Proden
from robustpll.plots import plot_candidates

X, y = load_digits(return_X_y=True)
noise = ClassDependent(added=2, cooccurrence=0.8)  # most often another class
candidates = noise.apply(X, y, random_state=0)
model = PLLClassifier(Proden(epochs=30), random_state=0).fit(X, candidates)

fig, ax = plt.subplots(layout="constrained")
plot_candidates(model, None, candidates, ax=ax)
