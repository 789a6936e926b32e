"""Parts of a fit: weights of rows, callbacks, early stopping, and a check of what was learned."""

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

import robustpll
from robustpll.engine.checkpoint import Start, checksum
from robustpll.engine.data import Rows, Task
from robustpll.engine.layers import seeded
from robustpll.engine.modules import EMBEDDINGS, Layout, Unpacking, is_dict, is_several, own_module
from robustpll.engine.predict import Fitted, Networks
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share, some_of
from robustpll.estimator.features import is_byte_pictures, is_sparse
from robustpll.labels.annotators import copies, overruled
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import as_pandas, is_frame
from robustpll.methods import Auto, DeepMethod, Method
from robustpll.methods.auto import Stack
from robustpll.methods.base import normalize
from robustpll.opinion import Opinion, each_part

ClassWeight = Mapping[Any, float] | str | None
MOST_OVERRULED = 0.05  # of rows whose annotators all agree


def checked_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """The callbacks as a tuple; raise InputError for anything else."""
    is_several = isinstance(callbacks, Sequence) and not isinstance(callbacks, str)
    able = callbacks if is_several else [None]
    if not all(hasattr(one, "on_epoch_end") and not isinstance(one, type) for one in able):
        raise InputError(
            "callbacks must be a list of objects with a method on_epoch_end(state), such as "
            f"[CSVLogger('log.csv')]; got {callbacks!r}."
        )
    return tuple(callbacks)


def warn_of_other_order(X: Any, y: Any) -> None:
    """Warn if y has the index of X in another order, because rows are paired by position."""
    indices = [table.index for table in (X, getattr(y, "answers", y)) if hasattr(table, "iloc")]
    is_other = len({*map(len, indices)}) == 1 and not indices[0].equals(indices[-1])
    if is_other and indices[0].isin(indices[-1]).all():
        fault = "y has the index of X in another order, but rows are paired by position"
        remedy = "Sort y by the index of X, or pass it without an index if its order is right."
        warnings.warn(f"{fault}. {remedy}", UserWarning, stacklevel=4)  # where a user calls `fit`


def former_networks(model: Any, method: Method, what: str) -> Networks | None:
    """What a model goes on from, if it is fitted; raise InputError if its method cannot go on."""
    reason = ""
    if isinstance(method, Auto):
        reason = "it calibrates by rows that it holds out, and a former network may have seen them"
    elif not isinstance(method, DeepMethod) or type(method).fit is not DeepMethod.fit:
        reason = "it is not one training of networks"
    elif what == "partial_fit" and not method.incremental:
        reason = "it remembers several epochs"
    if reason:
        raise InputError(
            f"{what} is not possible with {method.title}: {reason}. Use a method such as "
            "'robust_pll' or 'proden', or fit all rows again."
        )
    fitted = getattr(model, "fitted_", None)
    if not isinstance(fitted, Networks | None):
        msg = f"The model was fitted by {fitted.method.title}, which cannot go on. "
        raise InputError(msg + "Fit it by the new method first, with warm_start=False.")
    return fitted


def refuse_on_cluster(cluster: Any, callbacks: Any, session: Any, start: Start | None) -> None:
    """Raise InputError if a cluster is to train what only this process can."""
    used = {"callbacks": callbacks, "checkpoint": session, "warm_start or partial_fit": start}
    names = [name for name, value in used.items() if value]
    if cluster is not None and names:
        raise InputError(
            f"cluster={cluster!r} trains in other processes, which do not know {some_of(names)}. "
            "Fit with cluster=None."
        )


def task_of(rows: Rows, candidates: Candidates, weight: Any, seed: int, former: Any = None) -> Task:
    """The task of one run; it starts with former label weights (n, k) as far as these fit."""
    arrays = (candidates.matrix, candidates.prior, weight)
    matrix, prior, weights = (torch.tensor(array)[None] for array in arrays)
    answers = None if candidates.answers is None else torch.tensor(candidates.answers)[None]
    task = Task.of(rows, matrix, (seed,), prior, weights, answers=answers)
    if former is None or former.shape != candidates.shape:
        return task
    restricted = torch.tensor(former).to(task.prior)[None] * task.candidates
    return replace(task, start=normalize(restricted, task.prior))


def description_of(
    method: Method, task: Task, share: float | None, start: Start | None
) -> dict[str, str]:
    """Everything that decides the result of a fit, by name, for its checkpoint."""
    rows, net = task.rows, None if start is None else start.net
    parts: dict[str, dict[str, Any]] = {
        "rows": {name: getattr(rows, name) for name in ("pool", "indices", "shift", "scale")},
        "candidates": {name: getattr(task, name) for name in ("candidates", "prior", "answers")},
        "weights": {"weight": task.weight},
        "start": {"label weights": task.start, **({} if net is None else net.state_dict())},
    }
    fields = {name: getattr(method, name) for name in method.field_names()}
    about = {"version": robustpll.__version__, "method": type(method).__qualname__}
    about |= {name: in_words(value) for name, value in fields.items()}
    about |= {"watch": repr(share), "device": task.prior.device.type, "seed": str(task.seeds[0])}
    tensors = {part: {n: t for n, t in of.items() if t is not None} for part, of in parts.items()}
    return about | {part: checksum("", named) for part, named in tensors.items()}


def in_words(value: Any) -> str:
    """Describe a field alike in every process; a function has the hash of its code, too."""
    if isinstance(value, frozenset):  # of words, whose order differs
        return repr(sorted(map(in_words, value)))
    words = re.sub(" at 0x[0-9a-f]+", "", repr(value))
    is_code = isinstance(value, CodeType)
    code = value if is_code else getattr(getattr(value, "network", value), "__code__", None)
    if code is None:
        return words
    known = (code.co_code, code.co_names, *map(in_words, code.co_consts))
    digest = hashlib.sha256(repr(known).encode()).hexdigest()[:16]
    return digest if is_code else f"{words} {digest}"  # code names its file and line


def refuse_unscaled_views(method: Method, scale: Any, axes: int) -> None:
    """Raise InputError if strong views are asked of pictures whose pixels are not from 0 to 1."""
    augment = getattr(method, "augment", "auto")
    has_views = bool(getattr(method, "views", ())) or isinstance(method, Auto)
    is_strong = augment == "strong" or (has_views and augment == "auto")
    if axes == 4 and scale in ("standard", None) and is_strong:
        raise InputError(
            f"Views of pictures need pixels from 0 to 1; scale={scale!r} has another range. Fit "
            "with scale='auto' or 'minmax', or with augment=None."
        )


def row_weights(
    candidates: Candidates, class_weight: ClassWeight, sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Weights (n,) with mean 1; a row's class weight is the mean over its candidates' prior."""
    names: list[Any] = candidates.classes.tolist()
    of_class: Any = None  # all 1
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = candidates.prior.sum(0, dtype=np.float64)
        of_class = np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)
    elif isinstance(class_weight, Mapping) and class_weight.keys() <= set(names):
        of_class = [class_weight.get(name, 1.0) for name in names]
    elif class_weight is not None:
        raise InputError(
            "class_weight must be None, 'balanced', or a dict with a weight for some of the "
            f"classes {some_of(map(repr, names), 10)}; got {class_weight!r}."
        )
    rules: Any = {"dtype": np.float64, "ensure_non_negative": True}
    try:
        weight = _check_sample_weight(sample_weight, candidates.matrix, **rules)
        of_class = _check_sample_weight(of_class, candidates.matrix.T, **rules)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight or class_weight cannot be used: {error}") from error
    if class_weight is not None:
        weight = weight / weight.max() * (candidates.prior @ (of_class / of_class.max()))
    if not (weight.any() and np.isfinite(weight).all()):
        raise InputError(
            "sample_weight or class_weight gives all rows the weight 0, or one that is not finite."
        )
    weight = weight / weight.max()  # first, so that the mean of huge weights does not overflow
    return np.asarray(weight / weight.mean())


def fit_early_stopping(
    method: Method, task: Task, share: float | None
) -> tuple[Fitted, Tensor, Opinion]:
    """Fit one run; return the model, and the label weights and opinion of all rows.

    A share of the rows, if any, are validation rows: the training keeps the epoch that fits their
    candidates best. Their opinion is the model's prediction within their candidates.
    """
    if share is None:
        fitted = method.fit(task)
        return fitted, fitted.label_weights[0], fitted.opinion[0]
    training_rows, validation_rows = validation_split(len(task), share, task.seeds[0])
    validation = task.some_rows(validation_rows)
    fitted = method.fit(task.some_rows(training_rows), validation=validation)
    predicted = replace(fitted.predict(validation.rows), prior=validation.prior.double())
    predicted = predicted.within(validation.candidates)
    order = torch.cat([training_rows, validation_rows]).argsort().to(validation.prior.device)

    def all_rows(learned: Tensor, predicted: Tensor) -> Tensor:
        return torch.cat([learned[0].to(predicted), predicted[0]])[order]

    weights = all_rows(fitted.label_weights, predicted.probability).to(fitted.label_weights)
    return fitted, weights, each_part(all_rows, fitted.opinion, predicted)


def validation_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of training rows and of validation rows, drawn at random."""
    count = round(n * share) if is_share(share) else 0
    if not 1 <= count <= n - 2:
        raise InputError(
            "watch must be None, or the share of validation rows: a number between 0 and 1 that "
            f"leaves 2 rows to learn from and 1 to watch. Got {share!r} for {n} rows."
        )
    order = np.random.default_rng(seed_of(seed, "watch")).permutation(n)
    return torch.from_numpy(np.sort(order[count:])), torch.from_numpy(np.sort(order[:count]))


def check_training(
    fitted: Fitted, task: Task, weights: Tensor, opinion: Opinion, *, stopped_early: bool
) -> None:
    """Raise InputError if a training diverged, and warn if its model learned little.

    It learned little if half of the rows have several classes in first place and most predictions
    are no candidates, if a random class is rarely a candidate, and so are the predictions, or if
    all rows get the same class, though no class is a candidate of most rows.
    """
    numbers = [weights, opinion.belief, opinion.uncertainty]
    if isinstance(fitted, Networks | Stack):
        sample = task.some_rows(torch.arange(0, len(task), -(-len(task) // 1000)))  # 1,000 rows
        if isinstance(fitted, Networks):
            predicted = replace(fitted, method=fitted.method.with_passes(16)).predict(sample.rows)
            numbers += [*fitted.net.state_dict().values()]
            numbers += [] if stopped_early else fitted.history.losses[-1:]
        else:
            predicted = fitted.predict(sample.rows)
        numbers += [predicted.belief, predicted.uncertainty]
    if task.answers is not None:
        _warn_of_annotators(task.answers[0].cpu().numpy(), opinion.predicted().cpu().numpy())
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        raise InputError(
            "Training diverged: the model has numbers that are not finite. Fit again with a lower "
            "learning_rate, and look for rows of a far larger weight than others."
        )
    if not isinstance(fitted, Networks | Stack) or len(sample) < 100:  # too few for a warning
        return
    labels = predicted.predicted()[..., None].to(sample.candidates.device)
    weight = sample.weight / sample.weight.sum().clamp(min=1e-10)
    rate = float((sample.candidates.gather(-1, labels)[..., 0] * weight).sum())
    tied = float(predicted.guess.double().mean()) >= 0.5 and rate < 0.5
    rare = float(sample.candidates.double().mean()) < 0.05 and rate < 0.1
    most_frequent = float((sample.candidates * weight[..., None]).sum(1).max())
    single = int(labels.unique().numel()) == 1 and most_frequent < 0.8 and len(sample) >= 500
    if tied or rare or single:
        problem = f"in {rate:.1%} of its training rows the predicted class is a candidate"
        message = (
            f"{fitted.method.title} has learned little: "
            f"{'all rows get the same class' if single else problem}. Train for more epochs, try "
            'another learning_rate, or use "proden".'
        )
        warnings.warn(message, UserWarning, stacklevel=5)  # where a user calls `fit`


def _warn_of_annotators(answers: NDArray[np.int64], predicted: NDArray[np.int64]) -> None:
    """Warn of what the model of annotators cannot tell from its opposite."""
    if pairs := copies(answers):
        several = some_of([f"{one} and {two}" for one, two in pairs])
        message = (
            f"Annotators in columns {several} of the answers, counted from 0, are nearly always of "
            "one opinion, but often not of the others'. Each counts as independent: if one copies "
            "another, pass only one of them."
        )
        warnings.warn(message, UserWarning, stacklevel=6)
    if (share := overruled(answers, predicted)) > MOST_OVERRULED:
        message = (
            f"{share:.0%} of the rows whose annotators all agree get another class. Either these "
            "rows misled people, or X says too little about the class: then people are right, and "
            "probabilities are too high. Check some such rows before you use the labels."
        )
        warnings.warn(message, UserWarning, stacklevel=6)


def with_layout(method: Method, X: Any, y: Any) -> tuple[Any, Layout | None]:
    """Return the method whose network unpacks X, and the layout of X, if it has one.

    A dict or tuple of arrays has a layout, and integers for a network with an embedding have one.
    """
    network = getattr(method, "network", "")
    if isinstance(network, str):
        if is_dict(X):
            raise InputError(
                "X is a dict of arrays, which only a network of your own takes. Pass a module as "
                "`network` of a method that trains networks, or one array as X."
            )
        return method, None
    if not is_several(X) and not _are_ids(X, network, y):
        return method, None
    layout = Layout.of(X)
    changes: dict[str, Any] = {"network": Unpacking(network, layout)}
    is_moved = getattr(method, "moves_rows", False) or np.any(getattr(method, "adversary", 0) or 0)
    if is_moved or getattr(method, "learner", "") == "trees":
        raise InputError(
            f"{method.title} with these settings changes rows or grows trees, which needs scaled "
            "features; X has ids or several arrays. Use adversary=0 and learner='network', or "
            "another method."
        )
    if isinstance(method, Auto):
        changes |= {"learner": "network", "adversary": 0.0}
    return replace(method, **changes), layout  # type: ignore[type-var]


def _are_ids(X: Any, network: Any, y: Any) -> bool:
    """Whether X is an array of integers, no table and no pictures, and the network embeds them."""
    if is_frame(as_pandas(X)) or is_sparse(X) or is_byte_pictures(X):
        return False
    try:
        array = np.asarray(X)
    except ValueError:  # `fit` says what is wrong with it
        return False
    if array.dtype.kind not in "iu" or array.ndim < 2:
        return False
    with seeded(0, torch.device("cpu")):
        module = own_module(network, array.shape[1:], len(Candidates.of(y).classes))
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())
