import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from robustpll import RobustPLLClassifier, Votes
from robustpll.plots import plot_confusion

random, (X, y) = np.random.default_rng(0), load_wine(return_X_y=True)
names = np.array(["Barolo", "Grignolino", "Barbera"])
answers = np.tile(y[:, None], 4)
confused = (answers == 2) & (random.random(answers.shape) < 0.4)
answers[confused] = 1  # Barbera is often taken for Grignolino
votes = Votes(names[answers])
model = RobustPLLClassifier(epochs=20, members=3, random_state=0).fit(X, votes)

fig, ax = plt.subplots(layout="constrained")
plot_confusion(model, None, votes, ax=ax)
