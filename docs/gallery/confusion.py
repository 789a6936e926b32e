import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from robustpll import PLLClassifier
from robustpll.datasets.noise import InstanceDependent
from robustpll.methods import Proden
from robustpll.plots import plot_confusion

X, y = load_digits(return_X_y=True)
noise = InstanceDependent(epochs=30, learning_rate=0.03)
candidates = noise.apply(X, y, random_state=0)
model = PLLClassifier(Proden(epochs=30), random_state=0).fit(X, candidates)

fig, ax = plt.subplots(layout="constrained")
plot_confusion(model, None, y, ax=ax).set_ylabel("true label")
