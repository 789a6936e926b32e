"""Any scikit-learn estimator as the learner: label weights by its own held-out predictions."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, Rule
from robustpll.labels.annotators import Crowd, Kind, posterior_given_answers
from robustpll.labels.parsing import Ints
from robustpll.labels.votes import Floats, normalized, votes_for
from robustpll.methods.base import Count
from robustpll.methods.classical import Classical, ClassicalMethod, OneRun, Tensors
from robustpll.methods.forest import Forest
from robustpll.opinion import Opinion

LEAST = 1e-4  # a smaller label weight is not learned
SETTLED = 1e-2  # mean share of a row's weight that moves in the last round
COPIES = 5  # of a row with drawn labels, for a classifier that takes no weights
LEARNERS = ("forest", "random_forest", "hist_gradient_boosting", "logistic_regression")


def _learner(name: str, seed: int) -> Any:
    """Return one of the `LEARNERS`."""
    from sklearn import ensemble
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "forest":  # squared error of label weights is Gini impurity: soft labels
        options: Any = {"max_features": "sqrt", "oob_score": True, "random_state": seed}
        return ensemble.RandomForestRegressor(200, **options)
    if name == "random_forest":
        return ensemble.RandomForestClassifier(300, random_state=seed)
    if name == "hist_gradient_boosting":  # early stopping would need two rows of every class
        return ensemble.HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=seed))


def _is_learner(value: Any) -> bool:
    if isinstance(value, str):
        return value in LEARNERS
    fits = hasattr(value, "fit") and hasattr(value, "get_params") and not isinstance(value, type)
    return fits and (hasattr(value, "predict_proba") or _learns_matrix(value))


def _learns_matrix(estimator: Any) -> bool:
    """Whether an estimator learns label weights (n, k) themselves, not rows of one class."""
    return isinstance(estimator, BaseEstimator) and bool(is_regressor(estimator))


LEARNER = Rule(
    f"one of {', '.join(map(repr, LEARNERS))}, a scikit-learn classifier with predict_proba, or a "
    "regressor with several outputs; wrap another classifier in CalibratedClassifierCV",
    _is_learner,
)


@dataclass(frozen=True)
class Wrapped(ClassicalMethod):
    """Any scikit-learn classifier, or regressor with several outputs, learns from candidates.

    It starts with the prior as label weights. In each round, models that did not see a row predict
    it; the new label weights are these probabilities times the prior, within the candidates. The
    rounds end when less than 1 % of the weight moves. The last model learns the final weights.

    A classifier learns one row for each candidate, with the label weight as sample weight. If it
    takes no sample weights, it learns 5 copies of each row, with drawn labels. A regressor learns
    the label weights themselves. Held-out predictions come from the out-of-bag trees of a
    regressor with ``oob_score=True``, otherwise from folds.

    Parameters
    ----------
    estimator : str or estimator
        "forest" (soft labels, out-of-bag), "random_forest", "hist_gradient_boosting",
        "logistic_regression", or an unfitted estimator or pipeline. A ``random_state`` of None is
        set by the seed.
    labels : str
        "resolved" learns the label weights as above. The others are baselines without rounds.
        "majority": the classes with the largest prior (most votes) share the row equally. "prior":
        the prior itself. The rest need `Votes`. "one_coin" and "dawid_skene": the models "number"
        and "confusion" of `robustpll.labels.annotators.Crowd`. "crowd_kit": Dawid-Skene of
        crowd-kit. "cleanlab": its consensus of the answers and of the estimator's held-out
        predictions, trained on the majority; its probability is its quality. These labels may be
        classes that nobody named. Of the first three, the estimator learns the weights of the
        candidates, and of cleanlab the consensus. The last two need
        ``pip install 'robustpll[crowds]'``.
    folds : int
        Folds of held-out predictions, at least 2; not used with out-of-bag predictions.
    rounds : int
        The most rounds. Each fits `folds` models, or one with out-of-bag predictions.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from robustpll import PLLClassifier
    >>> X = [[0.0], [1], [2], [10], [11], [12]]
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> model = PLLClassifier(Wrapped(GaussianNB(), folds=3), random_state=0).fit(X, y)
    >>> model.labels_.tolist(), model.predict([[1.5]]).tolist()
    (['a', 'a', 'a', 'b', 'b', 'b'], ['a'])
    """

    name = "wrapped"
    title = "Wrapped"
    citation = "Pedregosa, Varoquaux: Scikit-learn: Machine Learning in Python. JMLR 2011"
    published = False
    on_host = True
    cost = (20.0, 1.1)
    learns: ClassVar = {"estimator": (torch.uint8, ("bytes",)), "columns": (torch.bool, ("k",))}

    estimator: Annotated[str | Any, LEARNER] = "forest"
    labels: Literal[
        "resolved", "majority", "prior", "one_coin", "dawid_skene", "crowd_kit", "cleanlab"
    ] = "resolved"
    folds: Annotated[int, Rule("of at least 2", lambda folds: folds >= 2)] = 5
    rounds: Count = 3

    @property
    def package(self) -> str:
        return PACKAGES.get(self.labels, "")

    def check(self, task: Task, validation: Task | None) -> None:
        if validation is not None:
            fault = f"{self.title} has no epochs to choose from"
            raise InputError(f"{fault}. Leave out watch, or use a method that trains networks.")

    def fit(self, task: Task, *, validation: Task | None = None) -> "WrappedModels":
        if self.labels in CROWDS:
            task = self.with_told(task)
        fitted: Any = super().fit(task, validation=validation)
        held_out = [learned.pop("held_out") for learned in fitted.learned]
        known = held_out[0] is not None
        opinion = Opinion.of_probability(torch.stack(held_out)) if known else None
        return WrappedModels(self, fitted.learned, fitted.opinion, held_out=opinion)

    def with_told(self, task: Task) -> Task:
        """Return a task whose prior is what answers tell; rows without any keep theirs."""
        if task.answers is None:
            raise InputError(f"labels={self.labels!r} needs answers of annotators: Votes.")
        prior, predicted = task.prior.clone(), task.prior
        if self.labels == "cleanlab":
            majority = torch.from_numpy(leaders(prior.double().cpu().numpy())).to(prior)
            once = replace(self, labels="resolved", rounds=1)
            held_out = once.fit(replace(task, prior=majority)).held_out
            assert held_out is not None
            predicted = held_out.probability
        for run, answers in enumerate(task.answers.cpu().numpy()):
            answered = (answers >= 0).any(-1)
            if answered.any():
                rows = torch.from_numpy(answered).to(prior.device)
                model = predicted[run][rows].double().cpu().numpy()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of pandas, about what the packages call
                    told = CROWDS[self.labels](answers[answered], task.k, model)
                prior[run, rows] = torch.from_numpy(told).to(prior)
        return replace(task, prior=prior)

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        # Threads of BLAS spin: on busy cores, a logistic regression takes many times as long.
        with threadpool_limits(1 if isinstance(self.estimator, str) else None, "blas"):
            return self._fit_run(run)

    def _fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        prior = run.prior.cpu().numpy()
        data = _Rows(
            as_float32(run.x),
            prior * run.candidates.cpu().numpy(),
            run.weight.double().cpu().numpy(),
            np.random.default_rng(seed_of(run.seed, self.name)),
            torch.get_num_threads() if isinstance(self.estimator, str) else 1,
        )
        estimator, weights, held_out = self.seeded(run.seed), data.prior, None
        if self.labels == "majority":
            weights = leaders(weights)
        if self.labels == "resolved":
            weights, held_out = self.resolved(estimator, data)
        learned_weights = weights = normalized(weights, data.prior)
        if self.labels in CROWDS:
            learned_weights, weights = normalized(data.prior, prior), prior
        if self.labels == "cleanlab":
            learned_weights = leaders(weights)
        learned = data.fit(estimator, learned_weights)
        if held_out is None:
            held_out = out_of_bag(learned["estimator"])
        learned["held_out"] = None
        if held_out is not None:
            held_out = normalized(held_out, 1 / weights.shape[1])
            learned["held_out"] = torch.from_numpy(held_out).to(run.x)
        return learned, Opinion.of_probability(torch.from_numpy(weights).to(run.x), None, run.prior)

    def seeded(self, seed: int) -> Any:
        """Return an unfitted copy of the estimator whose random states are set."""
        if isinstance(self.estimator, str):
            return _learner(self.estimator, seed_of(seed, self.name) % 2**32)
        estimator = clone(self.estimator)
        states = {
            name: seed_of(seed, self.name, name) % 2**32
            for name, value in estimator.get_params().items()
            if name.split("__")[-1] == "random_state" and value is None
        }
        return estimator.set_params(**states)

    def resolved(self, estimator: Any, data: "_Rows") -> tuple[Floats, Floats | None]:
        """Return the label weights (n, k) of the last round, and its held-out predictions."""
        n = len(data.x)
        parts = np.array_split(data.random.permutation(n), min(self.folds, n))
        weights, probability = data.prior, None
        for _ in range(self.rounds):
            probability = None
            if getattr(estimator, "oob_score", False) and _learns_matrix(estimator):
                probability = out_of_bag(data.fit(estimator, weights)["estimator"])
            if probability is None:
                probability = data.out_of_fold(estimator, weights, parts)
            before, weights = weights, normalized(probability * data.prior, data.prior)
            if abs(weights - before).sum(-1).mean() / 2 < SETTLED:
                break
        return weights, probability

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        probability = probability_of(learned, as_float32(x))
        return Opinion.of_probability(torch.from_numpy(probability).to(x))


def _by_crowd(answers: Ints, k: int, _: Floats, kind: Kind) -> Floats:
    shares = votes_for(answers, k).sum(0) + 1e-9
    known = np.tile(shares / shares.sum(), (len(answers), 1))
    return posterior_given_answers(Crowd.fit(answers, k, kind=kind), answers, known)


def _by_crowd_kit(answers: Ints, k: int, _: Floats) -> Floats:
    import pandas as pd

    row, worker = np.nonzero(answers >= 0)
    long = pd.DataFrame({"task": row, "worker": worker, "label": answers[row, worker]})
    fitted = _imported("crowdkit.aggregation").DawidSkene(n_iter=100).fit(long)
    probability = fitted.probas_.reindex(range(len(answers))).reindex(columns=range(k))
    return np.array(probability.fillna(0.0))


def _by_cleanlab(answers: Ints, k: int, held_out: Floats) -> Floats:
    module = _imported("cleanlab.multiannotator")
    told = np.where(answers >= 0, answers, np.nan)[:, (answers >= 0).any(0)]
    try:
        result = module.get_label_quality_multiannotator(told, held_out, verbose=False)
    except ValueError as error:
        raise InputError(f"cleanlab refuses the answers: {error}") from error
    table = result["label_quality"]
    is_consensus = np.arange(k) == table[["consensus_label"]].to_numpy().astype(int)
    # so that the consensus stays the most probable class
    quality = table[["consensus_quality_score"]].to_numpy().clip(1 / k + 1e-6)
    return np.asarray(np.where(is_consensus, quality, (1 - quality) / max(k - 1, 1)))


# What answers (n, annotators) and held-out predictions (n, k) tell about each class, (n, k).
CROWDS: dict[str, Callable[[Ints, int, Floats], Floats]] = {
    "one_coin": partial(_by_crowd, kind="number"),
    "dawid_skene": partial(_by_crowd, kind="confusion"),
    "crowd_kit": _by_crowd_kit,
    "cleanlab": _by_cleanlab,
}
PACKAGES = {"crowd_kit": "crowdkit", "cleanlab": "cleanlab"}  # to import


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}). Run: pip install 'robustpll[crowds]'"
        ) from error


@dataclass(frozen=True)
class WrappedModels(Classical):
    """Fitted estimators of R runs."""

    # Each has its "estimator", and "columns" (k,): which classes it has. A random forest or extra
    # trees come back from a file as a `Forest`, as `Auto` has them.
    learned: tuple[dict[str, Any], ...]
    held_out: Opinion | None = None  # (R, n, k): each row by models that did not see it

    @property
    def estimators(self) -> tuple[Any, ...]:
        return tuple(learned["estimator"] for learned in self.learned)

    @property
    def forest(self) -> Forest | None:
        """The trees of the first run as tensors, if it has such."""
        estimator = self.estimators[0]
        return estimator if isinstance(estimator, Forest) else None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.forest is None else self.forest.value.device

    def without_training_rows(self) -> Self:
        return replace(super().without_training_rows(), held_out=None)

    def part(self, runs: slice) -> Self:
        held_out = None if self.held_out is None else self.held_out[runs]
        return replace(super().part(runs), held_out=held_out)


def forest_model(forest: Forest) -> WrappedModels:
    """Return a model of one run that predicts by a forest, without its training rows."""
    columns = torch.ones(forest.value.shape[1], dtype=torch.bool)
    nothing = Opinion.of_probability(forest.value[None, :0])
    return WrappedModels(Wrapped(), ({"estimator": forest, "columns": columns},), nothing)


@dataclass(frozen=True)
class _Rows:
    """Training rows of one run, and how an estimator learns label weights of them."""

    x: NDArray[np.float32]  # (n, d)
    prior: Floats  # (n, k), 0 outside the candidates
    weight: Floats  # (n,): sample weights
    random: np.random.Generator
    threads: int = 1  # that fit trees; threads that predict would add them up in any order

    def out_of_fold(self, estimator: Any, weights: Floats, parts: list[Any]) -> Floats:
        """Return the probability (n, k) of each row, by a model of the other parts."""
        probability = np.empty_like(weights)
        for part in parts:
            others = np.setdiff1d(np.arange(len(weights)), part)
            weight = self.weight[others] if self.weight[others].any() else np.ones(len(others))
            rows = replace(self, x=self.x[others], weight=weight)
            learned = rows.fit(estimator, weights[others])
            probability[part] = probability_of(learned, self.x[part])
        return probability

    def fit(self, estimator: Any, weights: Floats) -> dict[str, Any]:
        """Return a copy of the estimator that has learned label weights (n, k), and its columns."""
        estimator, key = clone(estimator), _weight_parameter(estimator)
        y: Any = None
        columns = np.ones(weights.shape[1], dtype=bool)
        if _learns_matrix(estimator):
            rows = np.arange(len(weights)) if key else self._copies(1)
            y, sample_weight = weights[rows], self.weight[rows]
        else:
            rows, classes = self._with_classes(weights, by_weight=key is not None)
            sample_weight = self.weight[rows] * weights[rows, classes]
            columns = np.isin(np.arange(len(columns)), classes)
            y = (columns.cumsum() - 1)[classes]  # without gaps, which some classifiers refuse
            if columns.sum() == 1:  # most classifiers refuse a single class
                from sklearn.dummy import DummyClassifier

                estimator, key = DummyClassifier(), None
        jobs: Any = parallel_config("threading", n_jobs=self.threads)
        with jobs if self.threads > 1 else nullcontext(), warnings.catch_warnings():
            # a row that is in every tree's sample keeps its prior
            warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
            warnings.filterwarnings("ignore", "R.2 score is not well-defined")
            estimator.fit(self.x[rows], y, **({key: sample_weight} if key else {}))
        return {"estimator": estimator, "columns": torch.from_numpy(columns)}

    def _with_classes(self, weights: Floats, *, by_weight: bool) -> tuple[Any, Any]:
        """Return positions of rows and their classes: all with a label weight, or drawn ones."""
        if by_weight:
            rows, classes = np.nonzero((weights >= LEAST) & (self.weight[:, None] > 0))
            return rows, classes
        rows = self._copies(1 if (weights.max(-1) > 1 - LEAST).all() else COPIES)
        shares = weights[rows].cumsum(-1)
        return rows, (shares > self.random.random((len(rows), 1)) * shares[:, -1:]).argmax(-1)

    def _copies(self, count: int) -> NDArray[np.int64]:
        """Return so many positions for each row, or as many in all, drawn by sample weight."""
        rows = np.repeat(np.arange(len(self.weight)), count)
        if np.ptp(self.weight) == 0:
            return rows
        share = self.weight[rows] / self.weight[rows].sum()
        return np.sort(self.random.choice(rows, len(rows), p=share))


def _weight_parameter(estimator: Any) -> str | None:
    """Return the name of the sample weights in `fit`, also of a pipeline; None without one."""
    from sklearn.pipeline import Pipeline

    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _weight_parameter(last)
        return inner and f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def probability_of(learned: dict[str, Any], x: NDArray[np.float32]) -> Floats:
    """Return the probability (q, k) of each class for rows x (q, d); absent classes have 0."""
    estimator, columns = learned["estimator"], learned["columns"].cpu().numpy()
    probability = np.zeros((len(x), len(columns)))
    if isinstance(estimator, Forest):
        rows = torch.from_numpy(x).to(estimator.value.device)
        answer = estimator.probability(rows).cpu().numpy()
    else:
        predict = estimator.predict if _learns_matrix(estimator) else estimator.predict_proba
        answer = np.asarray(predict(x))
    if answer.shape != (len(x), columns.sum()):
        raise InputError(
            f"The estimator must answer {columns.sum()} numbers for each row; got {answer.shape} "
            f"for {len(x)} rows. Use a classifier, or a regressor with several outputs."
        )
    probability[:, columns] = np.clip(answer, 0, None)
    return normalized(probability, columns / columns.sum())


def out_of_bag(estimator: Any) -> Floats | None:
    """Return the out-of-bag predictions (n, k) of a regressor that has them; else None."""
    # A row that no tree left out has zeros. Those of a classifier would see other copies of a row.
    if not _learns_matrix(estimator):
        return None
    prediction = getattr(estimator, "oob_prediction_", None)
    return None if prediction is None else np.clip(prediction, 0, None).astype(np.float64)


def leaders(weights: Floats) -> Floats:
    """Return 1 for the largest label weights of each row (n, k), also equal ones, else 0."""
    return np.asarray(1.0 * (weights >= weights.max(-1, keepdims=True) * (1 - 1e-6)))


def as_float32(x: Tensor) -> NDArray[np.float32]:
    """Return rows as scikit-learn's trees take them."""
    return x.float().cpu().contiguous().numpy()
