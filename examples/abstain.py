"""A model in use: it answers where it keeps its promise, and hands over the other rows.

python examples/abstain.py
"""

from collections import Counter

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll import RobustPLLClassifier

PROMISE = 0.02  # at most so many of the accepted answers may be wrong


def main() -> None:
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X + rng.normal(0, 3, X.shape)  # poor scans: no model is always right
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
    X_known, X_live, y_known, y_live = train_test_split(X_rest, y_rest, random_state=0)
    candidates = [{label, *rng.choice(10, size=2)} for label in y_train]
    model = RobustPLLClassifier(epochs=40, members=3, random_state=0).fit(X_train, candidates)

    # Once, with labelled rows that were not trained on. It stays in the model file.
    model.calibrate_decisions(X_known, y_known)

    broken = rng.uniform(0, 16, (40, 64))  # what a broken scanner sends
    decision = model.decide(np.concatenate([X_live, broken]), error=PROMISE)
    live, from_broken = decision.accepted[: len(X_live)], decision.accepted[len(X_live) :]
    wrong = decision.label[: len(X_live)] != y_live
    print(f"error without abstaining: {wrong.mean():.3f}")
    print(f"accepted: {live.mean():.3f} of the scans, {from_broken.sum()} of the 40 broken ones")
    print(f"error among the accepted scans: {wrong[live].mean():.3f} (promised: {PROMISE})")
    reasons = Counter(reason.split(":")[0] for reason in decision.reason)
    print("reasons:", dict(reasons.most_common()))


if __name__ == "__main__":
    main()
