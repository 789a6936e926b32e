import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from robustpll import RobustPLLClassifier, Votes
from robustpll.plots import plot_annotators

random, (X, y) = np.random.default_rng(0), load_digits(return_X_y=True)
X, y, crowd = X[:500], y[:500], 60
skill = random.beta(4, 2, crowd)  # shares of right answers
activity = random.pareto(1.2, crowd) + 0.2  # few people answer most
answers = np.full((len(y), crowd), None)
for row, label in enumerate(y):
    who = random.choice(crowd, 5, replace=False, p=activity / activity.sum())
    wrong = (label + random.integers(1, 10, 5)) % 10
    answers[row, who] = np.where(random.random(5) < skill[who], label, wrong)
model = RobustPLLClassifier(members=3, random_state=0).fit(X, votes := Votes(answers))

fig, ax = plt.subplots(layout="constrained")
plot_annotators(model, None, votes, ax=ax)
