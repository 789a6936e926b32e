"""Memory that training and prediction take for pictures of bytes, beyond a fixed part.

    python benchmarks/picture_memory.py [--rows 50000]

Prints how much the peak of a process grows with the pictures, in bytes per byte of X, for channels
first and last. X itself counts, and a copy if its channels are moved.
"""

import argparse
import os
import resource
import subprocess
import sys
import warnings
from typing import Any

SHAPES = {"first": (3, 32, 32), "last": (32, 32, 3)}
SMALL = 10_000  # rows of the first run, whose peak is subtracted


def fit_and_predict(rows: int, shape: tuple[int, ...]) -> int:
    """Train a small network for an epoch, and predict; return the bytes of X."""
    import numpy as np
    from torch import nn

    from robustpll import PLLClassifier
    from robustpll.methods import RobustPll

    def network(shape: tuple[int, ...], k: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 4), nn.Linear(4, k))

    X = np.zeros((rows, *shape), dtype=np.uint8)
    X += np.arange(rows, dtype=np.uint8).reshape(-1, 1, 1, 1)  # touched, so that it takes memory
    method: Any = RobustPll(epochs=1, network=network)
    model = PLLClassifier(method, random_state=0, device="cpu").fit(X, np.arange(rows) % 4)
    model.predict(X)
    return X.nbytes


def growth(order: str, rows: int) -> float:
    """Return the growth of the peak from 10,000 pictures to `rows`, in bytes per byte of X."""
    sizes, peaks = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the labels cannot be learned
        for count in (SMALL, rows):
            sizes.append(fit_and_predict(count, SHAPES[order]))
            peaks.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])


def measured(order: str, rows: int) -> float:
    """As `growth`, in a process of its own, on Linux.

    Memory that is freed goes back at once there: what glibc keeps depends on chance.
    """
    command = [sys.executable, __file__, "--order", order, "--rows", str(rows)]
    variables = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--order", choices=SHAPES, help="measure in this process")
    options = parser.parse_args()
    if options.order:
        print(growth(options.order, options.rows))
        return
    for order in SHAPES:
        print(f"channels {order}: {measured(order, options.rows):.2f} bytes per byte of X")


if __name__ == "__main__":
    main()
