"""The methods without a training loop as one would write them down: row by row, machine by machine.

They are what `classical_speed.py` compares with. All take and give numpy arrays; x (q, d) are
scaled rows, `rows` (n, d) the training rows, `candidates` (n, k) theirs. At the end, `HANDS` says
for each method what of this is done for a fit and a prediction, and how far it agrees with ours.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_matrix
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC

from robustpll.methods.pl_svm import compiled_steps, plain_steps

Set = frozenset[int]
SOME, SOME_TESTED = 2000, 1000  # rows, at most
STEPS, MACHINES = 20_000, 8  # of PlSvm and PlEcoc


@dataclass(frozen=True)
class Found:
    """Rows of one run, and what our side learned and predicted."""

    x: np.ndarray  # (n, d)
    candidates: np.ndarray  # (n, k)
    test_x: np.ndarray  # (q, d)
    around: dict[str, np.ndarray]
    learned: dict[str, np.ndarray]
    probability: np.ndarray  # (n, k), of training rows
    predicted: np.ndarray  # (q, k)


@dataclass
class Clock:
    """Seconds of parts, on the clock and of the processor.

    What was done for a share of the rows counts as if done for all.
    """

    parts: dict[str, dict[str, float]] = field(default_factory=dict)

    def time(self, name: str, done: int, of: int, action: Callable[[], Any]) -> Any:
        begun, processor = time.perf_counter(), time.process_time()
        result = action()
        self.parts[name] = {
            "seconds": round(time.perf_counter() - begun, 4),
            "processor": round(time.process_time() - processor, 4),
            "done": done,
            "of": of,
        }
        return result

    def total(self, kind: str = "seconds") -> float:
        return sum(part[kind] * part["of"] / part["done"] for part in self.parts.values())


def near(
    x: np.ndarray, rows: np.ndarray, count: int, own: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and places (q, count); with `own` (q,) places in the rows, none is its own."""
    search = NearestNeighbors(n_neighbors=count + (own is not None)).fit(rows)
    distance, at = search.kneighbors(x)
    if own is None:
        return distance, at
    kept = at != own[:, None]
    kept[kept.all(1), -1] = False  # where duplicates came before the row itself
    return distance[kept].reshape(len(x), count), at[kept].reshape(len(x), count)


def votes(distance: np.ndarray, at: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """PlKnn's, (q, k)."""
    given = np.zeros((len(at), candidates.shape[1]))
    for row in range(len(at)):
        total = distance[row].sum()
        for apart, neighbour in zip(distance[row], at[row], strict=True):
            closeness = 1 - apart / total if total >= 1e-6 else 1.0
            given[row] += closeness * candidates[neighbour]
    return given


def shares(given: np.ndarray) -> np.ndarray:
    given = np.where(given.sum(1, keepdims=True) < 1e-10, 1.0, given)
    return given / given.sum(1, keepdims=True)


def mixtures(x: np.ndarray, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Ipal's weights of neighbours, (q, m)."""
    weights = np.array([nnls(rows[own].T, row)[0] for row, own in zip(x, at, strict=True)])
    return np.where(weights > 1e-10, weights, 0)


def spread(weights: np.ndarray, at: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Ipal's label weights, (n, k), from the whole graph."""
    n, m = at.shape
    total = weights.sum(1, keepdims=True)
    edges = np.divide(weights, total, out=np.zeros_like(weights), where=total > 1e-10)
    graph = csr_matrix((edges.ravel(), at.ravel(), np.arange(0, n * m + 1, m)), shape=(n, n))
    start = candidates / candidates.sum(1, keepdims=True)
    found = start
    for _ in range(100):
        found = (0.95 * (graph @ found) + 0.05 * start) * candidates
        found /= found.sum(1, keepdims=True)
    found = found * start.sum(0) / found.sum(0)
    return found / found.sum(1, keepdims=True)


def explained(
    x: np.ndarray, rows: np.ndarray, at: np.ndarray, weights: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Ipal's probabilities of other rows, (q, k); labels (n, k) are one of k each."""
    found = np.zeros((len(x), labels.shape[1]))
    for row in range(len(x)):
        for c in range(labels.shape[1]):
            given_back = (weights[row] * labels[at[row], c]) @ rows[at[row]]
            found[row, c] = -np.square(x[row] - given_back).sum()
    found = np.exp(found - found.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def sets_of(candidates: np.ndarray) -> list[Set]:
    return [frozenset(np.flatnonzero(row).tolist()) for row in candidates]


def masses(said: Sequence[Set], base: Set) -> dict[Set, float]:
    """DstPll's, by one witness after the other, and then Yager's rule."""
    found = {base: 1.0}
    for named in said:
        met = named & base
        if not met or met == base:
            continue
        combined: dict[Set, float] = {}
        for known, mass in found.items():
            for other in (met, base):
                both = known & other
                combined[both] = combined.get(both, 0.0) + mass / 2
        found = combined
    found[base] += found.pop(frozenset(), 0.0)
    return found


def probabilities(at: np.ndarray, sets: list[Set], bases: Sequence[Set], k: int) -> np.ndarray:
    """DstPll's, (q, k)."""
    found = np.zeros((len(at), k))
    for row, (own, base) in enumerate(zip(at, bases, strict=True)):
        mass = masses([sets[neighbour] for neighbour in own], base)
        for c in base:
            found[row, c] = mass.get(frozenset([c]), 0.0)
        if found[row].sum() == 0:
            heaviest = max(mass, key=lambda met: (mass[met], -len(met)))
            found[row, list(heaviest)] = 1
        found[row] /= found[row].sum()
    return found


def pegasos(x: np.ndarray, candidates: np.ndarray, order: np.ndarray) -> np.ndarray:
    """PlSvm's weights (k, d), for λ = 1."""
    weights = np.zeros((candidates.shape[1], x.shape[1]))
    for t, i in enumerate(order, 1):
        scores = weights @ x[i]
        best = np.where(candidates[i], scores, -np.inf).argmax()
        rival = np.where(candidates[i], -np.inf, scores).argmax()
        weights *= max(1e-9, 1 - 1 / t)
        if not candidates[i].all() and scores[best] - scores[rival] < 1:
            weights[best] += x[i] / t
            weights[rival] -= x[i] / t
        length = math.sqrt((weights * weights).sum())
        if length > 1:
            weights /= length
    return weights


def softmax(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """PlSvm's probabilities, (q, k)."""
    found = []
    for row in x:
        scores = weights @ row
        powers = np.exp(scores - scores.max())
        found.append(powers / powers.sum())
    return np.array(found)


def svms(x: np.ndarray, sides: np.ndarray, **settings: Any) -> list[LinearSVC]:
    """PlEcoc's machines for sides (n, L)."""
    found = []
    for side in sides.T:
        svc = LinearSVC(dual="auto", random_state=0, **settings)
        found.append(svc.fit(x[side != 0], side[side != 0]))
    return found


def decisions(machines: list[LinearSVC], x: np.ndarray) -> np.ndarray:
    return np.stack([machine.decision_function(x) for machine in machines], 1)


def reliability(values: np.ndarray, candidates: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """PlEcoc's, before it is divided by its sum, (k, L)."""
    found = np.zeros(codes.T.shape)
    for c in range(len(found)):
        own = values[candidates[:, c]] > 0
        found[c] = (own == codes[:, c]).mean(0) if len(own) else 0
    return found


def decoded(values: np.ndarray, codes: np.ndarray, reliability: np.ndarray) -> np.ndarray:
    """PlEcoc's probabilities (q, k) by the published decoding; codes are (L, k)."""
    signs = np.where(codes.T, 1.0, -1.0)  # (k, L)
    found = []
    for row in values:
        scores = (reliability * np.exp(signs * row)).sum(1)
        found.append(scores / scores.sum())
    return np.array(found)


def some_of(count: int, most: int) -> np.ndarray:
    """Places of up to so many of `count` things, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(int)


def same(one: np.ndarray, other: np.ndarray) -> str:
    """How many rows are equal but for rounding."""
    apart = np.abs(one - other).max(1)
    return f"{int((apart < 1e-6).sum())} of {len(one)} agree"


def pl_knn(found: Found, fit: Clock, predict: Clock) -> dict[str, Any]:
    x, n, q = found.x, len(found.x), len(found.test_x)
    some, tested = some_of(n, SOME), some_of(q, SOME_TESTED)
    close = fit.time("neighbours", len(some), n, lambda: near(x[some], x, 10, some))
    given = fit.time("votes", len(some), n, lambda: votes(*close, found.candidates))
    resolved = shares(given * found.candidates[some])
    rows = found.test_x[tested]
    close = predict.time("neighbours", len(tested), q, lambda: near(rows, x, 10))
    given = predict.time("votes", len(tested), q, lambda: votes(*close, found.candidates))
    return {
        "training rows": same(resolved, found.probability[some]),
        "test rows": same(shares(given), found.predicted[tested]),
    }


def ipal(found: Found, fit: Clock, predict: Clock) -> dict[str, Any]:
    x, n, q = found.x, len(found.x), len(found.test_x)
    some, tested = some_of(n, SOME), some_of(q, SOME_TESTED)
    _, at = fit.time("neighbours", len(some), n, lambda: near(x[some], x, 10, some))
    weights = fit.time("weights", len(some), n, lambda: mixtures(x[some], x, at))
    whole = found.around["weights"], found.around["indices"], found.candidates
    resolved = fit.time("spreading", n, n, lambda: spread(*whole))
    rows, labels = found.test_x[tested], found.learned["labels"]
    _, at = predict.time("neighbours", len(tested), q, lambda: near(rows, x, 10))
    edges = predict.time("weights", len(tested), q, lambda: mixtures(rows, x, at))
    predicted = predict.time(
        "residuals", len(tested), q, lambda: explained(rows, x, at, edges, labels)
    )
    return {
        "weights of training rows": same(weights, whole[0][some]),
        "training rows": same(resolved, found.probability),
        "test rows": same(predicted, found.predicted[tested]),
    }


def dst_pll(found: Found, fit: Clock, predict: Clock) -> dict[str, Any]:
    x, n, q, k = found.x, len(found.x), len(found.test_x), found.candidates.shape[1]
    some, tested = some_of(n, SOME), some_of(q, SOME_TESTED)
    sets = fit.time("sets", n, n, lambda: sets_of(found.candidates))
    _, at = fit.time("neighbours", len(some), n, lambda: near(x[some], x, 10, some))
    own = [sets[row] for row in some]
    resolved = fit.time("masses", len(some), n, lambda: probabilities(at, sets, own, k))
    rows, everything = found.test_x[tested], [frozenset(range(k))] * len(tested)
    _, at = predict.time("neighbours", len(tested), q, lambda: near(rows, x, 10))
    predicted = predict.time(
        "masses", len(tested), q, lambda: probabilities(at, sets, everything, k)
    )
    return {
        "training rows": same(resolved, found.probability[some]),
        "test rows": same(predicted, found.predicted[tested]),
    }


def pl_svm(found: Found, fit: Clock, predict: Clock) -> dict[str, Any]:
    n, q = len(found.x), len(found.test_x)
    order = np.random.default_rng(0).integers(n, size=STEPS)
    steps = max(100_000, 10 * n)
    weights = fit.time("steps", STEPS, steps, lambda: pegasos(found.x, found.candidates, order))
    fast = (compiled_steps() or plain_steps)(found.x, found.candidates, order, 1.0)
    predicted = predict.time(
        "scores", q, q, lambda: softmax(found.learned["weights"], found.test_x)
    )
    return {
        "compiled": compiled_steps() is not None,
        "weights apart": float(np.abs(weights - fast).max()),
        "test rows": same(predicted, found.predicted),
    }


def chosen_machines(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """Which machines are trained, and their sides (n, machines): 1, -1 or 0 for neither."""
    codes = found.learned["codes"]
    some = some_of(len(codes), MACHINES)
    on, off = (found.candidates.astype(int) @ part[some].T.astype(int) for part in (codes, ~codes))
    return some, (off == 0).astype(int) - (on == 0)


def pl_ecoc(found: Found, fit: Clock, predict: Clock) -> dict[str, Any]:
    some, sides = chosen_machines(found)
    codes, weights = found.learned["codes"], found.learned["weights"]
    done, of, q = len(some), len(codes), len(found.test_x)
    exact = {"tol": 1e-8, "max_iter": 100_000}
    machines = fit.time("machines", done, of, lambda: svms(found.x, sides, **exact))
    values = fit.time("decision values", done, of, lambda: decisions(machines, found.x))
    right = codes[some]
    fit.time("reliability", done, of, lambda: reliability(values, found.candidates, right))
    predict.time("decision values", done, of, lambda: decisions(machines, found.test_x))
    tested, reliable = found.test_x @ weights[:-1] + weights[-1], found.learned["reliability"]
    predicted = predict.time("decoding", q, q, lambda: decoded(tested, codes, reliable))
    mine = found.x @ weights[:-1, some] + weights[-1, some]
    return {
        "machines": of,
        "rows of a machine": round(float((sides != 0).sum(0).mean())),
        "decision values apart": float(np.abs((mine - values)[sides != 0]).max()),
        "test rows": same(predicted, found.predicted),
    }


HANDS: dict[str, Callable[[Found, Clock, Clock], dict[str, Any]]] = {
    "pl_knn": pl_knn,
    "pl_svm": pl_svm,
    "ipal": ipal,
    "pl_ecoc": pl_ecoc,
    "dst_pll": dst_pll,
}
