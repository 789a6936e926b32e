"""How much DstPll's measures on out-of-distribution rows depend on its auto-encoder.

    python benchmarks/encoder_draws.py
    python benchmarks/encoder_draws.py --rows 2000 --epochs 3 --draws 2 --seeds 2    # a trial

One auto-encoder serves all seeds of a benchmark. Here several are trained on MNIST that differ in
their random numbers alone; with each, DstPll predicts test rows and rows of NotMNIST.
"""

import numpy as np
import torch
from common import accuracies, begin, problem_of

from robustpll import load_dataset
from robustpll.datasets.problem import ood_rows
from robustpll.engine.data import Rows, Task
from robustpll.engine.history import progress_bars
from robustpll.measures.metrics import as_recorded, cdf_area, signed_ks
from robustpll.methods import DstPll
from robustpll.methods.dst_pll import CODE, codes, trained_encoders


def main() -> None:
    args, report = begin(__doc__, draws=12, seeds=5, epochs=1000, rows=60_000)
    problem = problem_of("mnist", args)
    task, unknown = problem.task, ood_rows(problem, load_dataset("notmnist"))
    report["draws"] = []
    method = DstPll(neighbours=DstPll.paper().code_neighbours, encoder="never")
    same = Rows.joined([task.rows.part(slice(1))] * args.draws)
    with progress_bars():
        encoders = trained_encoders(same, args.epochs, tuple(range(args.draws)))
    for encoder in encoders:
        fitted = method.fit(Task.of(coded(task.rows, encoder), task.candidates, task.seeds))
        known, far = (fitted.predict(coded(rows, encoder)) for rows in (problem.test, unknown))
        right = accuracies(known.predicted(np.random.default_rng(0)), problem.test_labels)
        test, ood = (as_recorded(opinion.entropy.cpu().numpy()).ravel() for opinion in (known, far))
        measures = {"area": round(cdf_area(test, ood), 4), "ks": round(signed_ks(test, ood), 4)}
        accuracy = round(float(right.mean()), 2)
        report["draws"].append({"epochs": args.epochs, "accuracy": accuracy} | measures)
        print(report["draws"][-1], flush=True)
        report.save()


def coded(rows: Rows, encoder: dict[str, torch.Tensor]) -> Rows:
    """Return codes in place of rows that all runs share."""
    first = rows.part(slice(1))
    x = codes(encoder, first.x(first.everything)[0].flatten(1))
    indices = torch.arange(len(x), device=x.device).expand(rows.models, -1)
    unit = x.new_ones(rows.models, 1, CODE)
    return Rows(x, indices, torch.zeros_like(unit), unit)


if __name__ == "__main__":
    main()
