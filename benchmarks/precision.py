"""Whether TF32 and bfloat16 cost accuracy: digits and lost, ten seeds each.

python benchmarks/precision.py
"""

from dataclasses import replace

import numpy as np
from common import accuracies, open_report, options, save_report

from robustpll import Candidates, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, has_bf16
from robustpll.methods import Proden, RobustPll


def main() -> None:
    args = options(__doc__, epochs=100, seeds=10)
    device, digits = chosen_device("auto"), load_dataset("digits")
    matrix = np.random.default_rng(0).random((len(digits), 10)) < 0.5
    matrix[np.arange(len(digits)), digits.labels] = True
    precisions = ["float32", "auto"] if device.type == "cuda" else ["float32"]
    precisions += ["bf16"] if has_bf16(device) else []
    report = open_report(args.out, accuracy={})
    for data in (replace(digits, candidates=Candidates.of(matrix)), load_dataset("lost")):
        problem = Problem.of(data, None, range(args.seeds), device)
        for kind in (RobustPll, Proden):
            for precision in precisions:
                fitted = kind(epochs=args.epochs, precision=precision).fit(problem.task)
                predicted = fitted.predict(problem.test).predicted()
                each = accuracies(predicted, problem.test_labels)
                report["accuracy"][f"{data.name}, {kind.title}, {precision}"] = {
                    "mean": float(each.mean()),
                    "standard_error": float(each.std() / args.seeds**0.5),
                    "each": [round(float(number), 2) for number in each],
                }
                save_report(report, args.out)
    for name, found in report["accuracy"].items():
        print(f"{name}: {found['mean']:.2f} ± {found['standard_error']:.2f} %")


if __name__ == "__main__":
    main()
