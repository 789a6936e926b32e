"""How fast exact nearest neighbours are found, against other ways and libraries.

python benchmarks/neighbour_speed.py --out scratch/neighbour-speed.json

Ways take turns, and the fastest of some turns counts. Processor time is printed too: on a machine
with other work it says more than the time on the clock. faiss is compared where it is installed.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from robustpll.engine.device import chosen_device, device_name
from robustpll.methods.neighbours import neighbours

DEVICE = chosen_device("auto")
NEIGHBOURS = 10
CASES = ((60_000, 784, 4_000), (20_000, 160, 20_000))  # references, features, queries
Way = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("scratch/neighbour-speed.json"))
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    for n, d, q in CASES:
        name = f"{q:,} queries, {n:,} x {d} references"
        report[name] = compared(ways_of(*rows(n, d, q)), asked.turns)
        print(name)
        for way, found in report[name].items():
            print(
                f"  {way}: {found['seconds']:.2f} s, processor {found['processor']:.2f} s "
                f"({found['ratio']:.2f} times ours), {found['rows_that_differ']} rows differ"
            )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=2) + "\n")


def rows(n: int, d: int, q: int) -> tuple[Tensor, Tensor]:
    """From 0 to 1, near a curved sheet of ten dimensions, as pictures are; queries and references.

    All in float32; queries are some of the references.
    """
    generator = torch.Generator().manual_seed(0)
    sheet = torch.randn(n, 10, generator=generator) @ torch.randn(10, d, generator=generator)
    found = (sheet / 3 + 0.3 * torch.randn(n, d, generator=generator)).sigmoid()
    return found[:q].to(DEVICE), found.to(DEVICE)


def ways_of(queries: Tensor, references: Tensor) -> dict[str, Way]:
    """Ours comes first; each gives indices (q, NEIGHBOURS)."""

    def scikit_learn(dtype: type) -> np.ndarray:
        asked, known = (part.cpu().numpy().astype(dtype) for part in (queries, references))
        search = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(known)
        return search.kneighbors(asked, return_distance=False)

    ways: dict[str, Way] = {
        "ours": lambda: neighbours(queries, references, NEIGHBOURS).indices,
        "scikit-learn, float32": lambda: scikit_learn(np.float32),
        "scikit-learn, float64": lambda: scikit_learn(np.float64),
    }
    if importlib.util.find_spec("faiss"):
        import faiss

        def by_faiss() -> np.ndarray:
            index = faiss.IndexFlatL2(references.shape[1])
            index.add(references.cpu().numpy())
            return index.search(queries.cpu().numpy(), NEIGHBOURS)[1]

        ways["faiss, float32"] = by_faiss
    return ways


def compared(ways: dict[str, Way], turns: int) -> dict[str, dict[str, float]]:
    """Seconds of each way, and in how many rows its neighbours are other than ours."""
    seconds, processor = ({name: float("inf") for name in ways} for _ in range(2))
    found = {}
    for _ in range(turns):
        for name, way in ways.items():
            begin, begin_processor = time.perf_counter(), time.process_time()
            found[name] = torch.as_tensor(way()).cpu()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
            processor[name] = min(processor[name], time.process_time() - begin_processor)
    return {
        name: {
            "seconds": seconds[name],
            "processor": processor[name],
            "ratio": processor[name] / processor["ours"],
            "rows_that_differ": int((found[name] != found["ours"]).any(1).sum()),
        }
        for name in ways
    }


if __name__ == "__main__":
    main()
