"""What DstPll's measures on unknown rows owe to the draw of its auto-encoder.

    python benchmarks/encoder_draws.py --out benchmarks/results/encoder-draws.json
    python benchmarks/encoder_draws.py --rows 2000 --epochs 3 --draws 2 --seeds 2 --kept /tmp

One auto-encoder serves all seeds of a benchmark, so that seeds do not show how much depends on it.
Here several are trained at once on MNIST, which differ in their random numbers alone: initial
weights, order of rows, sampled codes. With the codes of each, DstPll judges the test rows and
NotMNIST's as in the benchmark. Meant for a GPU; the second line is a trial for a CPU.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from problems import problem_of, shortened

from robustpll import load_dataset
from robustpll.datasets.ood import ood_rows
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.history import progress_bars
from robustpll.measures.metrics import as_recorded, cdf_area, signed_ks
from robustpll.methods import DstPll
from robustpll.methods.dst_pll import CODE, Encoder, codes, trained_encoders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1000])
    parser.add_argument("--rows", type=int, default=60_000, help="training rows, at most")
    parser.add_argument("--kept", type=Path, default=Path("scratch"))
    parser.add_argument("--out", type=Path, default=Path("scratch/encoder-draws.json"))
    asked = parser.parse_args()
    problem = problem_of(shortened(load_dataset("mnist"), asked.rows), asked.seeds, asked.kept)
    unknown = ood_rows(problem, load_dataset("notmnist"))
    same = Rows.joined([problem.task.rows.part(slice(1))] * asked.draws)
    report = {
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "draws": [],
    }
    with progress_bars():
        for epochs in asked.epochs:
            for encoder in trained_encoders(same, epochs, tuple(range(asked.draws))):
                found = {"epochs": epochs} | measured(problem, unknown, encoder)
                print(found, flush=True)
                report["draws"].append(found)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


def measured(problem: Problem, unknown: Rows, encoder: Encoder) -> dict[str, float]:
    """Accuracy, and the measures of the entropies of all seeds as one sample."""
    method = DstPll.paper()
    plain = DstPll(neighbours=method.code_neighbours, encoder="never")
    task = problem.task
    fitted = plain.fit(Task.of(coded(task.rows, encoder), task.candidates, task.seeds))
    known = fitted.predict(coded(problem.test, encoder))
    right = known.predicted(np.random.default_rng(0)) == problem.test_labels
    far = fitted.predict(coded(unknown, encoder))
    test, ood = (as_recorded(each.entropy.cpu().numpy()).ravel() for each in (known, far))
    return {
        "accuracy": round(100 * float(right.double().mean()), 2),
        "area": round(cdf_area(test, ood), 4),
        "ks": round(signed_ks(test, ood), 4),
    }


def coded(rows: Rows, encoder: Encoder) -> Rows:
    """Codes in place of rows that all runs share."""
    x = codes(encoder, rows.part(slice(1)).x(rows.part(slice(1)).everything)[0].flatten(1))
    at = torch.arange(len(x), device=x.device).expand(rows.models, -1)
    unit = x.new_ones(rows.models, 1, CODE)
    return Rows(x, at, torch.zeros_like(unit), unit)


if __name__ == "__main__":
    main()
