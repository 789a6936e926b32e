"""The demo: three methods learn digits from ambiguous labels; nothing is downloaded."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll._files import OutFolder
from robustpll.attacks import PGD
from robustpll.datasets.noise import InstanceDependent
from robustpll.engine.history import progress_bars
from robustpll.estimator.classifier import PLLClassifier
from robustpll.methods import Proden, RobustPll, RobustPllEns
from robustpll.plots.style import picture_bytes
from robustpll.plots.tour import Example, Outcome, tour_picture

UNKNOWN = (8, 9)  # classes that are not in the training data
EPSILON = 0.1
PICTURE = "tour.png"

INTRODUCTION = """\
[bold]Learning digits from ambiguous labels.[/bold] A network that knows the true labels chooses, \
for each training digit, wrong classes that look plausible. They become candidates beside the true \
one. The methods see candidates only. The digits 8 and 9 are not in the training data.
"""
EXPLANATION = f"""\
Entropy runs from 0 (certain) to 1 (clueless): unknown digits should have more of it. The attack \
moves each pixel by at most {EPSILON:g} of its range, in 10 steps away from the class that was \
predicted for the clean digit, against all members at once. Stronger attacks exist.
"""


def run_demo(folder: Path, seed: int = 0, epochs: int = 100) -> Path:
    """Train three methods, print a table and draw a picture; return the picture's path."""
    out, console = OutFolder.of(folder, "demo"), Console()
    out.refuse_others([PICTURE])
    console.print(INTRODUCTION)
    X, y = load_digits(return_X_y=True)
    known = ~np.isin(y, UNKNOWN)
    train, test, truth, test_truth = train_test_split(
        X[known], y[known], test_size=0.25, random_state=seed, stratify=y[known]
    )
    with progress_bars(console):
        noise = InstanceDependent(epochs=30, learning_rate=0.03)  # there are few rows
        candidates = noise.apply(train, truth, seed)
        models = [
            PLLClassifier(method(epochs=epochs), random_state=seed).fit(train, candidates)
            for method in (RobustPll, RobustPllEns, Proden)
        ]
    outcomes = []
    for model in models:
        attack = PGD(EPSILON, labels="clean", joint=True)
        attacked = model.classes_[model.predict_opinion(test, attack).predicted()]
        outcomes.append(
            Outcome(
                model.resolved_method().title,
                test=model.score(test, test_truth),
                resolved=float((model.labels_ == truth).mean()),
                attacked=float((attacked == test_truth).mean()),
                entropy_known=model.predict_opinion(test).entropy,
                entropy_unknown=model.predict_opinion(X[~known]).entropy,
            )
        )
    console.print(
        f"\n{len(train):,} training digits with {candidates.sizes.mean():.1f} candidates out of "
        f"{len(candidates.classes)} classes on average; {len(test)} test digits; "
        f"{(~known).sum()} unknown ones."
    )
    console.print(_table(outcomes), EXPLANATION, sep="\n")
    sets, labels = candidates.sets(), models[0].labels_
    examples = [
        Example(train[row].reshape(8, 8), sorted(sets[row]), labels[row], truth[row])
        for row in np.unique(truth, return_index=True)[1]  # the first row of each class
    ]
    out.write(PICTURE, picture_bytes(tour_picture(examples, outcomes, EPSILON), "png"))
    console.print(f"Picture: [bold]{folder / PICTURE}[/bold]", soft_wrap=True)
    return folder / PICTURE


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("\nmethod", no_wrap=True)
    headings = ("test\naccuracy", "training labels\nresolved", "entropy,\nknown")
    for heading in (*headings, "entropy,\nunknown", "accuracy,\nattacked"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        entropies = outcome.entropy_known, outcome.entropy_unknown
        known, unknown = (f"{entropy.mean():.2f}" for entropy in entropies)
        shares = outcome.test, outcome.resolved, outcome.attacked
        test, resolved, attacked = (f"{100 * share:.1f} %" for share in shares)
        table.add_row(outcome.title, test, resolved, known, unknown, attacked)
    return table
