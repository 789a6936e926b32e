import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from robustpll import RobustPLLClassifier, Votes
from robustpll.plots import plot_annotators

random, (X, y) = np.random.default_rng(0), load_wine(return_X_y=True)
people = {"Ada": (0.95, 0.9), "Bob": (0.85, 0.3), "Eve": (0.7, 0.9), "Kim": (0.6, 0.1)}
people["Zoe, who guesses"] = (0.33, 0.5)  # share of right answers, share of rows
answers = pd.DataFrame(index=range(len(y)))
for name, (skill, diligence) in people.items():
    wrong = (y + random.integers(1, 3, len(y))) % 3
    given = np.where(random.random(len(y)) < skill, y, wrong).astype(object)
    answers[name] = np.where(random.random(len(y)) < diligence, given, None)
votes = Votes(answers, unanswered="all classes")
model = RobustPLLClassifier(epochs=60, random_state=0).fit(X, votes)

fig, ax = plt.subplots(layout="constrained")
plot_annotators(model, None, votes, ax=ax)
