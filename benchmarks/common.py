"""What the scripts share: options, reports that grow run by run, datasets with noise."""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustpll import METHODS, load_dataset
from robustpll.datasets.dataset import Split
from robustpll.datasets.noise import InstanceDependent, Noise
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.history import progress_bars
from robustpll.engine.predict import Fitted


class Report(dict[str, Any]):
    """Results in a file, with the commands that made them, machine and date."""

    def __init__(self, path: Path, **facts: Any) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {"sets": {}})
        self.path = path
        command = re.sub(r" --out \S+", "", " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))
        before = list(filter(None, self.get("command", "").split(" && ")))
        self["command"] = " && ".join(dict.fromkeys([*before, command]))
        self["machine"] = device_name(chosen_device("auto"))
        self["date"] = datetime.now(UTC).date().isoformat()
        self.update(facts, torch=torch.__version__)

    def save(self) -> None:
        """Write the file with each list of numbers on one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self, indent=1)
        flat = re.sub(r"\[[^\[\]{}\"]+\]", lambda match: " ".join(match[0].split()), text)
        self.path.write_text(flat.replace("[ ", "[").replace(" ]", "]") + "\n")

    def add(self, name: str, result: Any, part: str = "sets") -> None:
        """Print and save one result."""
        self.setdefault(part, {})[name] = result
        print(name, result, flush=True)
        self.save()

    def fill(
        self,
        datasets: Iterable[str],
        names: Iterable[str],
        compute: Callable[[str, str], dict[str, Any]],
        *,
        part: str = "",
    ) -> None:
        """Compute and save what the report lacks, for one dataset and method after the other."""
        with progress_bars():
            for dataset in datasets:
                known = self["sets"].setdefault(dataset, {})
                known = known.setdefault(part, {}) if part else known
                for name in (name for name in names if name not in known):
                    begun = time.perf_counter()
                    title = {"title": METHODS[name].title} if name in METHODS else {}
                    result = title | compute(dataset, name)
                    known[name] = result | {"seconds": round(time.perf_counter() - begun, 1)}
                    self.save()
                    print(dataset, name, known[name]["seconds"], "s", flush=True)


def begin(doc: str, **defaults: Any) -> tuple[argparse.Namespace, Report]:
    """Return the options of a script, and its report with those that are numbers.

    An option whose default is a tuple has several values.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    for name, default in defaults.items():
        several = isinstance(default, tuple)
        kind = type(default[0]) if several else type(default)
        nargs = "*" if several else None
        parser.add_argument(f"--{name}", type=kind, default=default, nargs=nargs)
    out = Path("scratch") / f"{Path(sys.argv[0]).stem.replace('_', '-')}.json"
    parser.add_argument("--out", type=Path, default=out, help="the file of results")
    parser.add_argument(
        "--cache", type=Path, default=Path("scratch"), help="a folder of candidates"
    )
    args = parser.parse_args()
    numbers = {n: getattr(args, n) for n in defaults if isinstance(defaults[n], int | float)}
    return args, Report(args.out, **numbers)


def method_of(name: str, epochs: int, *, paper: bool = False) -> Any:
    """Return a method with so many epochs, if it has any."""
    method: Any = METHODS[name].paper() if paper else METHODS[name]()
    return replace(method, epochs=epochs) if "epochs" in method.field_names() else method


def problem_of(name: str, args: argparse.Namespace) -> Problem:
    """Return a dataset with its candidates, or instance-dependent ones that are drawn once.

    The options say how many seeds and training rows there are, and where candidates are stored.
    """
    dataset = load_dataset(name)
    if dataset.official is not None:
        split = Split(dataset.official.train[: args.rows], dataset.official.test)
        dataset = replace(dataset, official=split)
    noise = (
        CachedNoise(args.cache / f"candidates-{name}.npz") if dataset.candidates is None else None
    )
    return Problem.of(dataset, noise, range(args.seeds))


@dataclass(frozen=True)
class CachedNoise(Noise):
    """Instance-dependent candidates from a file; if there is none, they are drawn and stored."""

    path: Path

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        about = f"{InstanceDependent()}, {len(rows)} rows, seeds {seeds}"
        if not self.path.exists():
            drawn = InstanceDependent().candidates(rows, labels, k, seeds)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(self.path, bits=np.packbits(drawn.cpu().numpy()), about=about)
        stored = np.load(self.path)
        if str(stored["about"]) != about:
            raise SystemExit(f"{self.path} holds {stored['about']}, not {about}: remove it.")
        size = (len(seeds), len(rows), k)
        bits = np.unpackbits(stored["bits"], count=int(np.prod(size))).reshape(size)
        return torch.from_numpy(bits.astype(bool)).to(rows.device)


def accuracies(predicted: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each run, in percent."""
    return 100 * (predicted == labels).double().mean(-1).cpu()


def on_test_rows(fitted: Fitted, problem: Problem) -> dict[str, Any]:
    """Return the accuracy of the runs; ties are broken at random."""
    predicted = fitted.predict(problem.test).predicted(np.random.default_rng(0))
    return spread_of(accuracies(predicted, problem.test_labels))


def spread_of(values: Any) -> dict[str, Any]:
    """Return mean, population standard deviation and each value over the seeds."""
    numbers = np.asarray(values, dtype=float)
    mean, std = round(numbers.mean(), 3), round(numbers.std(), 3)
    return {"mean": mean, "std": std, "each": numbers.round(3).tolist()}
