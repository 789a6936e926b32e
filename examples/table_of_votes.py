"""From answers of annotators, who sometimes err and sometimes do not answer, to a model.

python examples/table_of_votes.py
"""

import numpy as np
import pandas as pd

from robustpll import RobustPLLClassifier, Votes

KINDS = np.array(["cat", "dog", "hare"])


def animals(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Measured animals, with a word and gaps, and what they truly are."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    weight = (np.array([4.0, 20.0, 3.5])[kind] * rng.lognormal(0, 0.3, rows)).round(1)
    ears = (np.array([6.0, 10.0, 12.0])[kind] + rng.normal(0, 1.5, rows)).round(1)
    ears[rng.random(rows) < 0.1] = np.nan  # not measured
    found = np.where(rng.random(rows) < np.array([0.1, 0.3, 0.9])[kind], "field", "house")
    table = pd.DataFrame({"weight": weight, "ears": ears, "found": found})
    return table, KINDS[kind]


def answers_for(truth: np.ndarray, seed: int) -> pd.DataFrame:
    """Three annotators: each errs in a quarter of the rows, and skips a tenth."""
    rng = np.random.default_rng(seed)
    answers = {}
    for name in ("ann", "bob", "eve"):
        said = np.where(rng.random(len(truth)) < 0.25, rng.choice(KINDS, len(truth)), truth)
        answers[name] = np.where(rng.random(len(truth)) < 0.1, None, said)
    return pd.DataFrame(answers)


def main() -> None:
    features, truth = animals(600, seed=0)
    votes = Votes(answers_for(truth, seed=1), unanswered="all classes")
    model = RobustPLLClassifier(epochs=50, random_state=0).fit(features, votes)

    majority = votes.answers.mode(axis=1)[0]  # the first of tied ones
    print(f"right labels by majority: {(majority == truth).mean():.3f}")
    print(f"right labels by the model: {(model.labels_ == truth).mean():.3f}")

    new, new_truth = animals(300, seed=2)
    print(f"accuracy on new rows: {model.score(new, new_truth):.3f}")
    opinion = model.predict_opinion(new)
    row = int(np.argmax(opinion.uncertainty))
    shares = opinion.probability[row].round(2).tolist()
    probabilities = dict(zip(model.classes_.tolist(), shares, strict=True))
    print(f"least sure of {new.iloc[row].to_dict()}")
    print(f"uncertainty {opinion.uncertainty[row]:.2f}, probabilities {probabilities}")


if __name__ == "__main__":
    main()
