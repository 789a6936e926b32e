"""Datasets with their noise for the scripts here; candidates are drawn once, and kept in files."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from robustpll.datasets.dataset import Dataset, Split
from robustpll.datasets.noise import InstanceDependent, Noise
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows


def shortened(dataset: Dataset, rows: int) -> Dataset:
    """The first rows of the official training part; sets without one stay whole."""
    if dataset.official is None:
        return dataset
    official = Split(dataset.official.train[:rows], dataset.official.test)
    return replace(dataset, official=official)


def problem_of(dataset: Dataset, seeds: int, kept: Path) -> Problem:
    noise = None
    if dataset.candidates is None:
        noise = Kept(kept / f"candidates-{dataset.name}.npz", InstanceDependent())
    return Problem.of(dataset, noise, range(seeds))


@dataclass(frozen=True)
class Kept(Noise):
    """Candidates from a file, if it holds those of these rows and seeds; else they are drawn."""

    path: Path
    noise: Noise

    def candidates(
        self, rows: Rows, labels: torch.Tensor, k: int, seeds: tuple[int, ...]
    ) -> torch.Tensor:
        about = f"{self.noise}, {len(rows)} rows, seeds {seeds}"
        if not self.path.exists():
            found = self.noise.candidates(rows, labels, k, seeds)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(self.path, bits=np.packbits(found.cpu().numpy()), about=about)
        stored = np.load(self.path)
        if str(stored["about"]) != about:
            raise SystemExit(f"{self.path} holds {stored['about']}, not {about}: remove it.")
        size = (len(seeds), len(rows), k)
        bits = np.unpackbits(stored["bits"], count=int(np.prod(size))).reshape(size)
        candidates = torch.from_numpy(bits.astype(bool)).to(rows.device)
        assert candidates.gather(-1, labels[..., None]).all()
        return candidates
