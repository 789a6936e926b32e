import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from robustpll import PLLClassifier
from robustpll.datasets.noise import Flip, Independent
from robustpll.methods import PlKnn
from robustpll.plots import plot_candidates

X, y = load_wine(return_X_y=True)
y = np.array(["Barolo", "Grignolino", "Barbera"])[y]
candidates = Flip(0.25, Independent(chance=0.4)).apply(X, y, random_state=0)
model = PLLClassifier(PlKnn()).fit(X[::2], candidates[::2])

fig, ax = plt.subplots(layout="constrained")
plot_candidates(model, X[1::8], candidates[1::8], ax=ax)
