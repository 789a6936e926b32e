"""Processor seconds and memory of methods without a training loop, beside a call of scikit-learn.

    OMP_WAIT_POLICY=passive python benchmarks/classical_speed.py
    python benchmarks/classical_speed.py --sets bird-song --rows 2000    # a trial

So many rows of MNIST with uniform candidates, and bird-song with its own. Methods are as published,
but DstPll compares pictures without an auto-encoder. The call of scikit-learn is the most expensive
step of the method: the neighbours of all training rows, or one linear SVM per class. Each method
runs in a process of its own, which reports the peak of its resident memory.
"""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import begin
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC

from robustpll import METHODS, PLLClassifier, load_dataset
from robustpll.datasets.noise import Uniform

CALLS = {
    "pl_knn": "NearestNeighbors",
    "pl_svm": "LinearSVC",
    "ipal": "NearestNeighbors",
    "pl_ecoc": "",
    "dst_pll": "NearestNeighbors",
}


def main() -> None:
    sets = ("mnist", "bird-song")
    args, report = begin(__doc__, sets=sets, methods=tuple(CALLS), rows=10_000)
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:

        def compute(dataset: str, method: str) -> dict[str, Any]:
            return pool.submit(measured, dataset, method, args.rows).result()

        report.fill(args.sets, args.methods, compute)


def measured(name: str, method_name: str, rows: int) -> dict[str, Any]:
    """Return seconds of fitting, of predicting the test rows and of scikit-learn, and memory."""
    dataset = load_dataset(name)
    split, labels = dataset.split(0), np.asarray(dataset.labels)
    train = split.train[:rows]
    X = dataset.features.astype(np.float32) / dataset.white
    if dataset.candidates is None:
        y = Uniform().apply(X[train], labels[train], random_state=0)
    else:
        y = dataset.candidates[train]
    method: Any = METHODS[method_name].paper()
    method = replace(method, encoder="never") if method_name == "dst_pll" else method
    model = PLLClassifier(method, random_state=0, device="cpu")
    model.fit(X[train[:2000]], y[:2000])  # starts whatever is started once
    fit = seconds_of(lambda: model.fit(X[train], y))
    predict = seconds_of(lambda: model.predict(X[split.test]))
    status = Path("/proc/self/status").read_text()
    memory = round(int(status.split("VmHWM:")[1].split()[0]) / 1e3)
    seconds: dict[str, Any] = {"fit": fit, "predict": predict, "call_seconds": None}
    if CALLS[method_name] == "LinearSVC":
        svm = LinearSVC(tol=1e-2)
        seconds["call_seconds"] = seconds_of(lambda: svm.fit(X[train], labels[train]))
    elif CALLS[method_name]:
        search = NearestNeighbors(n_neighbors=11).fit(X[train])
        seconds["call_seconds"] = seconds_of(lambda: search.kneighbors(X[train]))
    return seconds | {"call": CALLS[method_name], "peak_mb": memory}


def seconds_of(action: Callable[[], Any]) -> float:
    """Return processor time, which other work on the machine hardly changes."""
    begun = time.process_time()
    action()
    return round(time.process_time() - begun, 3)


if __name__ == "__main__":
    main()
