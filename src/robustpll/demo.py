"""A tour in a minute: digits with ambiguous labels, nothing to download."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll._files import refuse_replacing
from robustpll.attacks.pgd import PGD
from robustpll.datasets.noise import InstanceDependent
from robustpll.engine.history import progress_bars
from robustpll.errors import InputError
from robustpll.estimator.classifier import PLLClassifier
from robustpll.labels.candidates import Candidates
from robustpll.methods import DeepMethod, Proden, RobustPll, RobustPllEns
from robustpll.plots.style import save_png
from robustpll.plots.tour import Example, Outcome, tour_picture

UNKNOWN = (8, 9)  # classes that training never sees
EPSILON = 0.1
EPOCHS = 100
SHOWN = 8
PNG = b"\x89PNG\r\n\x1a\n"
RESOLUTION = b"pHYs\x00\x00\x13\xfe\x00\x00\x13\xfe\x01"  # 130 dots per inch, as few pictures have


@dataclass(frozen=True)
class Digits:
    """Known digits with candidates for the training rows, and unknown ones."""

    train: NDArray[Any]
    truth: NDArray[Any]
    candidates: Candidates
    test: NDArray[Any]
    test_labels: NDArray[Any]
    unknown: NDArray[Any]


def run_demo(folder: Path, seed: int = 0, epochs: int = EPOCHS) -> Path:
    """Train three methods, print a table, draw a picture; returns the picture's path."""
    path = folder / "tour.png"
    _refuse_unwritable(path)
    console = Console()
    console.print(
        "[bold]Learning digits from ambiguous labels.[/bold] A network that knows the truth names, "
        "for each training digit, the wrong classes it finds plausible; they become candidates "
        "beside the true one. The methods see candidates only. The digits "
        f"{UNKNOWN[0]} and {UNKNOWN[1]} are held out: nobody is told that they exist.\n"
    )
    with progress_bars(console):
        digits = ambiguous_digits(seed)
        methods = (RobustPll(epochs=epochs), RobustPllEns(epochs=epochs), Proden(epochs=epochs))
        models = [_trained(method, digits, seed) for method in methods]
    outcomes = [_outcome(model, digits) for model in models]
    k = len(digits.candidates.classes)
    console.print(
        f"\n{len(digits.train):,} training digits with {digits.candidates.sizes.mean():.1f} "
        f"candidates out of {k} classes on average; {len(digits.test)} test digits; "
        f"{len(digits.unknown)} unknown ones."
    )
    console.print(outcome_table(outcomes))
    console.print(
        "Entropy runs from 0 (certain) to 1 (clueless): unknown digits should have more of it. "
        f"The attack moves each pixel by at most {EPSILON:g} of its range, in 10 steps away from "
        "the class predicted for the clean digit, against all members at once. It is a first look, "
        "not an audit: stronger attacks exist.\n"
    )
    save_png(tour_picture(_examples(models[0], digits), outcomes, EPSILON), path)
    console.print(f"Picture: [bold]{path}[/bold]", soft_wrap=True)
    return path


def is_picture(start: bytes) -> bool:
    """Whether a file begins as our pictures do."""
    return start.startswith(PNG) and RESOLUTION in start[:100]


def _refuse_unwritable(path: Path) -> None:
    """Before the training: make the folder, and look whether another's picture would be lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. Name another folder."
        ) from error
    refuse_replacing(path, is_picture, "a picture of the demo")


def ambiguous_digits(seed: int) -> Digits:
    """scikit-learn's digits, two classes held out, instance-dependent candidates for the rest."""
    X, y = load_digits(return_X_y=True)
    known = ~np.isin(y, UNKNOWN)
    train, test, truth, test_labels = train_test_split(
        X[known], y[known], test_size=0.25, random_state=seed, stratify=y[known]
    )
    noise = InstanceDependent(epochs=30, learning_rate=0.03)  # few rows: learn faster than on MNIST
    return Digits(train, truth, noise.apply(train, truth, seed), test, test_labels, X[~known])


def outcome_table(outcomes: list[Outcome]) -> Table:
    """The numbers behind the picture."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("\nmethod", no_wrap=True)
    for heading in (
        "test\naccuracy",
        "training labels\nresolved",
        "entropy,\nknown",
        "entropy,\nunknown",
        "accuracy,\nattacked",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.title,
            f"{100 * outcome.test:.1f} %",
            f"{100 * outcome.resolved:.1f} %",
            f"{outcome.entropy_known.mean():.2f}",
            f"{outcome.entropy_unknown.mean():.2f}",
            f"{100 * outcome.attacked:.1f} %",
        )
    return table


def _trained(method: DeepMethod, digits: Digits, seed: int) -> PLLClassifier:
    return PLLClassifier(method, random_state=seed).fit(digits.train, digits.candidates)


def _outcome(model: PLLClassifier, digits: Digits) -> Outcome:
    attack = PGD(EPSILON, labels="clean", joint=True)
    attacked = model.predict_opinion(digits.test, attack).predicted()
    return Outcome(
        title=model.resolved_method().title,
        test=model.score(digits.test, digits.test_labels),
        resolved=float((model.labels_ == digits.truth).mean()),
        attacked=float((model.classes_[attacked] == digits.test_labels).mean()),
        entropy_known=model.predict_opinion(digits.test).entropy,
        entropy_unknown=model.predict_opinion(digits.unknown).entropy,
    )


def _examples(model: PLLClassifier, digits: Digits) -> list[Example]:
    """The first training rows of different classes."""
    _, first = np.unique(digits.truth, return_index=True)
    return [
        Example(
            digits.train[row].reshape(8, 8),
            sorted(digits.candidates[[row]].sets()[0]),
            model.labels_[row],
            digits.truth[row],
        )
        for row in first[:SHOWN]
    ]
