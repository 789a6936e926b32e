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

Report = dict[str, Any]


def options(doc: str, **defaults: Any) -> argparse.Namespace:
    """Return the options of a script; a tuple is an option with several values."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    for name, default in defaults.items():
        several = isinstance(default, tuple)
        kind = type(default[0]) if several else type(default)
        nargs = "*" if several else None
        parser.add_argument(f"--{name}", type=kind, default=default, nargs=nargs)
    out = Path("scratch") / f"{Path(sys.argv[0]).stem.replace('_', '-')}.json"
    parser.add_argument("--out", type=Path, default=out, help="the file of results")
    return parser.parse_args()


def open_report(path: Path, **facts: Any) -> Report:
    """Return the results in a file, with the commands that made them, machine and date."""
    report = json.loads(path.read_text()) if path.exists() else {"sets": {}}
    command = re.sub(r" --out \S+", "", " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    before = list(filter(None, report.get("command", "").split(" && ")))
    return report | {
        "command": " && ".join(dict.fromkeys([*before, command])),
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        **facts,
    }


def save_report(report: Report, path: Path) -> None:
    """Write a report with each list of numbers on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1)
    flat = re.sub(r"\[[^\[\]{}\"]+\]", lambda match: " ".join(match[0].split()), text)
    path.write_text(flat.replace("[ ", "[").replace(" ]", "]") + "\n")


def fill(
    report: Report,
    path: Path,
    datasets: Iterable[str],
    names: Iterable[str],
    compute: Callable[[str, str], dict[str, Any]],
    *,
    part: str = "",
) -> None:
    """Compute and save what the report lacks, for one dataset and method after the other."""
    with progress_bars():
        for dataset in datasets:
            known = report["sets"].setdefault(dataset, {})
            known = known.setdefault(part, {}) if part else known
            for name in names:
                if name not in known:
                    begun = time.perf_counter()
                    title = {"title": METHODS[name].title} if name in METHODS else {}
                    result = title | compute(dataset, name)
                    known[name] = result | {"seconds": round(time.perf_counter() - begun, 1)}
                    save_report(report, path)
                    print(dataset, name, known[name]["seconds"], "s", flush=True)


def method_of(name: str, epochs: int, *, paper: bool = False) -> Any:
    """Return a method with so many epochs, if it has any."""
    method: Any = METHODS[name].paper() if paper else METHODS[name]()
    return replace(method, epochs=epochs) if "epochs" in method.field_names() else method


def problem_of(name: str, seeds: int, rows: int, cache: Path) -> Problem:
    """Return a dataset with its candidates, or instance-dependent ones that are drawn once."""
    dataset = load_dataset(name)
    if dataset.official is not None:
        split = Split(dataset.official.train[:rows], dataset.official.test)
        dataset = replace(dataset, official=split)
    noise = CachedNoise(cache / f"candidates-{name}.npz") if dataset.candidates is None else None
    return Problem.of(dataset, noise, range(seeds))


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


def spread_of(values: Any) -> dict[str, Any]:
    """Return mean, population standard deviation and each value over the seeds."""
    numbers = np.asarray(values, dtype=float)
    mean, std = round(numbers.mean(), 3), round(numbers.std(), 3)
    return {"mean": mean, "std": std, "each": numbers.round(3).tolist()}
