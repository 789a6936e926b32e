"""The default on pictures under attack by two levels of a byte, with and without an adversary.

    ROBUSTPLL_DATA=... python benchmarks/picture_attacks.py

Each model learns from the first training pictures of CIFAR-10, where each wrong class is a
candidate with probability 0.5. The audit has fewer steps than `robustness_report` by default.
"""

from typing import Any

import numpy as np
from common import begin

from robustpll import Candidates, RobustPLLClassifier, load_dataset, robustness_report
from robustpll.bench.worker import FEWER_STEPS

EPSILON = 2 / 255


def main() -> None:
    args, report = begin(__doc__, rows=3_000, tests=200, epochs=20)
    dataset = load_dataset("cifar10")
    assert dataset.labels is not None
    assert dataset.official is not None
    pictures = np.asarray(dataset.features).reshape(-1, 3, 32, 32)
    train, test = (part[: args.rows] for part in dataset.official)
    test = test[: args.tests]
    sets = np.random.default_rng(0).random((len(train), 10)) < 0.5
    sets[np.arange(len(train)), dataset.labels[train]] = True
    y = Candidates.of(sets, classes=dataset.classes)
    for name, adversary in (("default", None), ("adversary", EPSILON)):
        settings: Any = {"network": "convnet", "epochs": args.epochs, "adversary": adversary}
        model = RobustPLLClassifier(random_state=0, **settings).fit(pictures[train], y)
        truth = dataset.classes[dataset.labels[test]]
        robustness = robustness_report(model, pictures[test], truth, (EPSILON,), **FEWER_STEPS)
        print(robustness, flush=True)
        attacks = {attack: shares[0] for attack, shares in robustness.attacks.items()}
        result = {"clean": robustness.clean, "worst": robustness.worst[0], **attacks}
        report.add(name, result | {"warnings": robustness.warnings})


if __name__ == "__main__":
    main()
