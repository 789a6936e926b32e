"""The default method: networks and trees, weighted by how well they predict held-out answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from joblib import parallel_config
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax
from torch import Tensor

from robustpll.attacks import Attack
from robustpll.engine.augment import AUGMENT, Augment
from robustpll.engine.data import Rows, Task, fold_indices
from robustpll.engine.history import History
from robustpll.engine.modules import ParameterGroups
from robustpll.engine.networks import CONVOLUTIONAL, Network, named_network
from robustpll.engine.predict import Fitted, Networks
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, Rule, is_count, is_number
from robustpll.labels import annotators
from robustpll.labels.distractors import dependence
from robustpll.methods.answers import Answers
from robustpll.methods.base import GROUPS, NETWORK, DeepMethod, Method
from robustpll.methods.crdpll import RobustPllViews
from robustpll.methods.evidential import RobustPll, RobustPllAt
from robustpll.methods.forest import Forest
from robustpll.methods.proden import Proden
from robustpll.methods.wrapped import Wrapped, WrappedModels, forest_model
from robustpll.opinion import Opinion, each_part, stacked

Floats = NDArray[np.float64]
Evidence = Mapping[str, Tensor]  # of each part, (..., k)

FEWEST_ROWS = 20  # with fewer, nothing is held out
FEW_ROWS = 5_000  # up to here, every row is held out twice, by ten networks
# Labels are clear if they are votes, or if half of the rows have one candidate.
EPOCHS = {"clear": 40, "sets": 100}  # at most, and at most so many steps
STEPS = {"clear": 8_000, "sets": 14_000, "views": 12_000}
CPU_PIXELS = 5e8  # of all pictures that convolutional networks see on a CPU: minutes
MOST_CPU_PIXELS = 1e7  # numbers in the training rows; with more, networks on a CPU are MLPs
FEWEST_EPOCHS = 10
MANY_CLASSES = 50  # from here on, networks learn by the cross-entropy of Proden
ADVERSARY = {"rows": 0.02, "pictures": 0.05}  # share of a feature's range, for candidate sets
CEILING = {"rows": 0.3, "pictures": 3.0}  # of the divergence, see `RobustPll`
TREES, TREE_WORK = 300, 2e6  # trees in all, up to so many rows * classes * sqrt(features)
EVEN_SHARES = 2.0  # most frequent to rarest class, up to which classes of sets count as equal
LEAF_ROWS = 4_000  # rows for each further row that a leaf needs: bounds the size of a forest
CLEAR_SHARE = 0.5  # share of rows with one candidate that makes sets clear
TURNS = 3  # of exponents and rates of distractors
MORE_DEPENDENT = 0.05  # dependence of distractors on a prediction that trees may add
MOST_LACKING = 0.1  # of the covering rate; networks that lack more have not learned, see `useful`
LEAST_EVIDENCE = 1e-3  # of a class: its logarithm must be finite; see `log_evidence`
LEAST_SHARE = 0.05  # of the exponents; a learner with less is dropped
MOST_EVIDENCE = 1e6  # of all classes: an uncertainty of k / 1,000,000


def _or_none(words: str, holds: Any) -> Rule:
    return Rule(f"{words}, or None", lambda value: value is None or holds(value))


COUNT = _or_none("an int of at least 1", lambda value: is_count(value, least=1))
RATE = _or_none("a float above 0", lambda value: is_number(value) and value > 0)
EPSILON = _or_none("a float of at least 0", lambda value: is_number(value) and value >= 0)


@dataclass(frozen=True)
class Auto(Method):
    """RobustPll networks and a forest; those count that predict the answers of held-out rows.

    Rows are cut into folds. Each network and each forest leaves out one fold and predicts it.
    The evidence of a row is shared by a product of powers, e_network^g p_trees^h; its sum is that
    of the networks times exp(b). The numbers b, g and h make the held-out answers most likely, so
    that probabilities are calibrated without a true label. A learner with a small power is dropped.
    All members predict other rows together.

    Answers of annotators count by their reliability, less if annotators doubt the same rows as the
    model. Candidates of a set count by how often their class is a distractor, a candidate beside
    the true class. Both are estimated with the model. If distractors depend on the row, trees tend
    to learn them: trees are dropped if their predictions tell more about distractors than those of
    the networks, unless these have learned much less. Label weights of networks are balanced
    towards the class shares of the candidates; in sets, towards equal shares if no class has more
    than twice the share of another. From 50 classes on, networks that are not convolutional are
    those of Proden.

    Parameters
    ----------
    learner : {"auto", "network", "trees"}
        Which learners to train. There are no trees for pictures, nor if rows * classes *
        sqrt(features) exceeds 20 million.
    epochs : int or None
        None: 40 with clear labels (votes, or if half of the rows have one candidate), else 100; but
        at most 8,000 or 14,000 steps, and at least 10 epochs. Convolutional networks: 100, but at
        most 12,000 steps, and on a CPU 500 million pixels.
    batch_size, learning_rate, weight_decay
        Of Adam, with a one-cycle schedule. None: 0.003 and 0. Convolutional networks are trained by
        SGD: 0.2 for batches of 256, less for smaller ones, and 0.0005. Their batches have at most
        a twentieth of the rows, or 32.
    members : int or None
        Number of networks. None: twice as many as folds up to 5,000 rows, so that each row is
        held out twice; else, and for convolutional networks, as many as folds.
    network : str, module, class or callable
        A name of `robustpll.engine.networks.NETWORK_NAMES`, or your own. "auto": "small", two
        hidden layers of 256, for rows; "mlp" for grey pictures (n, h, w). For pictures with
        channels "resnet9" on CUDA; on a CPU the narrower "convnet", or "mlp" if the training rows
        have more than ten million numbers. Convolutional networks learn by `RobustPllViews`.
    adversary : float or None
        How far rows are moved in adversarial training, see `RobustPllAt`. None: 0 with clear labels
        and for convolutional networks, else 0.02 for rows and 0.05 for pictures, where it also
        resolves more labels.
    early_stopping : bool
        Whether each network is that of the epoch in which most of its held-out predictions are
        candidates.
    folds : int
        Number of folds; each network and each forest leaves out one.
    precision : {"auto", "float32", "bf16"}
        See `RobustPLLClassifier`.
    crowd : {"hierarchical", "confusion", "guesses", "number"}
        How annotators are described, see `robustpll.labels.annotators.Crowd`.
    augment : {"auto", "weak", "strong"}, Augmentation, callable or None
        See `RobustPLLClassifier`.
    parameter_groups : callable or None
        See `RobustPLLClassifier`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Auto(epochs=20), random_state=0).fit(X, y)
    >>> model.predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    """

    name = "auto"
    title = "Auto"
    citation = (
        f"{RobustPllAt.citation}; Breiman: Random Forests. Machine Learning 2001; Dawid, Skene: "
        "Maximum Likelihood Estimation of Observer Error-Rates. Applied Statistics 1979"
    )
    family = "ensemble"
    published = False
    scale = "auto"
    uncertain = True
    added_fields: ClassVar = {"parameter_groups": None, "augment": "auto"}

    learner: Literal["auto", "network", "trees"] = "auto"
    epochs: Annotated[int | None, COUNT] = None
    batch_size: Annotated[int, Rule("of at least 2", lambda size: size >= 2)] = 256
    learning_rate: Annotated[float | None, RATE] = None
    weight_decay: Annotated[float | None, EPSILON] = None
    members: Annotated[int | None, COUNT] = None
    network: Annotated[Network, NETWORK] = "auto"
    adversary: Annotated[float | None, EPSILON] = None
    early_stopping: bool = False
    folds: Annotated[int, Rule("of at least 2", lambda folds: folds >= 2)] = 5
    precision: Literal["auto", "float32", "bf16"] = "auto"
    crowd: annotators.Kind = "hierarchical"
    augment: Annotated[Augment, AUGMENT] = "auto"
    parameter_groups: Annotated[ParameterGroups, GROUPS] = None

    def fit(self, task: Task, *, validation: Task | None = None) -> "Stack":
        if validation is not None:
            raise InputError(
                "Auto holds out rows by itself. Use early_stopping=True instead of watch."
            )
        is_proden = task.k >= MANY_CLASSES and str(self._network(task)) not in CONVOLUTIONAL
        if self.adversary and is_proden:
            raise InputError(
                f"adversary must be None or 0 with {MANY_CLASSES} classes or more, because the "
                f"networks are those of Proden; got {self.adversary!r} and {task.k} classes."
            )
        method = replace(self, folds=min(self.folds, max(2, len(task) // 2)))
        runs = [method._fit_run(task.part(slice(run, run + 1))) for run in range(task.models)]
        return Stack.joined(self, runs)

    def networks(self, task: Task) -> DeepMethod:
        """Return the method of the networks, for one run."""
        is_single = task.candidates.sum(-1) == 1
        is_clear = task.answers is not None or float(is_single.double().mean()) >= CLEAR_SHARE
        labels = "clear" if is_clear else "sets"
        form = "rows" if len(task.rows.shape) == 1 else "pictures"
        network = self._network(task)
        settings: dict[str, Any] = {"network": network, "batch_size": self.batch_size}
        settings |= {"precision": self.precision, "schedule": "one-cycle"}
        settings |= {"parameter_groups": self.parameter_groups, "augment": self.augment}
        if isinstance(network, str) and network in CONVOLUTIONAL:
            return self._on_views(task, settings)
        adversary = self.adversary
        if adversary is None:
            adversary = 0.0 if is_clear else ADVERSARY[form]
        within_steps = STEPS[labels] * self.batch_size // len(task)
        epochs = self.epochs or max(FEWEST_EPOCHS, min(EPOCHS[labels], within_steps))
        settings |= {"epochs": epochs, "learning_rate": self.learning_rate or 3e-3}
        settings |= {"weight_decay": self.weight_decay or 0.0, "averaged": 0.5}
        if task.k >= MANY_CLASSES:  # the expected squared error is nearly flat
            return Proden(**settings)
        settings |= {"evidence": "exp", "kl_ceiling": CEILING[form], "balance": 0.5}
        shares = (task.prior * task.weight[..., None]).sum((0, 1))
        # Sets inflate the shares of classes that are often distractors; clear labels do not.
        is_even = not is_clear and bool(shares.max() <= EVEN_SHARES * shares.min())
        settings |= {"balance_to": "equal" if is_even else "candidates", "prior_on": "evidence"}
        if not adversary:
            return RobustPll(**settings)
        return RobustPllAt(**settings, adversary=adversary, attack_steps=1)

    def _network(self, task: Task) -> Network:
        """Return the network that "auto" stands for."""
        if self.network != "auto":
            return self.network
        shape, device = task.rows.shape, task.prior.device
        if len(shape) < 3:
            return "small" if len(shape) == 1 else "mlp"
        is_slow = device.type == "cpu" and len(task) * math.prod(shape) > MOST_CPU_PIXELS
        return "mlp" if is_slow else named_network("auto", shape, device)

    def _on_views(self, task: Task, settings: dict[str, Any]) -> DeepMethod:
        """Return the method of convolutional networks."""
        n, pixels = len(task), math.prod(task.rows.shape)
        batch_size = min(self.batch_size, max(32, n // 20))
        epochs = STEPS["views"] * batch_size // n
        if task.prior.device.type == "cpu":
            pictures = 2 * self.count(task) * n * (self.folds - 1) / self.folds  # in an epoch
            epochs = min(epochs, int(CPU_PIXELS / (pictures * pixels)))
        settings["epochs"] = self.epochs or max(FEWEST_EPOCHS, min(100, epochs))
        settings["learning_rate"] = self.learning_rate or 0.2 * batch_size / 256
        settings["weight_decay"] = 5e-4 if self.weight_decay is None else self.weight_decay
        settings |= {"batch_size": batch_size, "adversary": self.adversary or 0.0}
        return RobustPllViews(**settings)

    def count(self, task: Task) -> int:
        """Return the number of networks for one run."""
        network = self._network(task)
        is_cheap = len(task) <= FEW_ROWS and str(network) not in CONVOLUTIONAL
        return self.members or (2 * self.folds if is_cheap else self.folds)

    def holds_out_all(self, n: int, folds: int) -> bool:
        """Whether members that did not see a row predict it, for all of n rows in so many folds.

        Early stopping looks at held-out rows, and fewer members than folds do not reach all.
        """
        return n >= FEWEST_ROWS and not self.early_stopping and (self.members or folds) >= folds

    def _fit_run(self, task: Task) -> "OneStack":
        """Fit one run: learners, their exponents, and the labels of the training rows."""
        answers = Answers.of(task, self.crowd)
        prior = torch.from_numpy(answers.within_candidates())[None].to(task.prior)
        task = replace(task, prior=prior)
        parts = {}
        if self.learner != "trees":
            parts["network"] = fold_networks(self, task)
        if self.learner != "network" and _has_trees(task, is_required=self.learner == "trees"):
            parts["trees"] = fold_trees(self, task)
        stack = OneStack({name: part.fitted for name, part in parts.items()})
        if len(task) >= FEWEST_ROWS:
            stack = stack.weighed(parts, answers)
        stack = stack.with_labels(parts, answers)
        if any(part.seen is not None for part in parts.values()):
            stack = replace(stack, held_out=None)
        moved: dict[str, Any] = {
            name: opinion and each_part(lambda part: part.to(task.prior.device), opinion)
            for name, opinion in (("opinion", stack.opinion), ("held_out", stack.held_out))
        }
        return replace(stack, **moved)


def _has_trees(task: Task, *, is_required: bool) -> bool:
    """Whether trees suit a run: rows of numbers, and not too many."""
    n, k, shape = len(task), task.k, task.rows.shape
    work = n * k * math.sqrt(math.prod(shape))
    suited = len(shape) == 1 and n >= FEWEST_ROWS and k > 1 and work <= 10 * TREE_WORK
    if is_required and not suited:
        raise InputError(
            f"learner='trees' needs {FEWEST_ROWS} rows or more of numbers and two classes, and at "
            f"most {10 * TREE_WORK:.0e} rows * classes * sqrt(features). Use learner='network'."
        )
    return suited


@dataclass(frozen=True)
class FoldPart:
    """Members of one kind, and what each says about rows that it did not see."""

    fitted: Any  # predicts other rows by all members
    held_out: Tensor  # (members, rows): positions of these rows
    opinion: Opinion  # of them, (members, rows, ...)
    folds: int
    seen: Opinion | None = None  # (n, ...): by all members, if some rows were held out by none

    def evidence(self, n: int, most: int) -> tuple[Tensor, NDArray[np.int64]]:
        """Evidence (n, k) by the members that held a row out, at most `most`; how many, (n,)."""
        members = slice(most * self.folds)  # a partition of the rows has as many members as folds
        positions, opinion = self.held_out[members].flatten(), self.opinion[members]
        number = torch.bincount(positions, minlength=n)

        def mean(part: Tensor) -> Tensor:
            sums = torch.zeros(n, *part.shape[2:], dtype=torch.float64)
            sums.index_add_(0, positions, part.flatten(0, 1).double().cpu())
            return sums / number.clamp(min=1).view(-1, *[1] * (part.ndim - 2))

        evidence = evidence_of(each_part(mean, opinion))
        if self.seen is not None:
            by_all = each_part(lambda part: part.double().cpu(), self.seen)
            evidence = torch.where(number[:, None] > 0, evidence, evidence_of(by_all))
        return evidence, number.numpy()


def evidence_of(opinion: Opinion) -> Tensor:
    """Evidence (..., k) of an opinion; without uncertainty, its probability."""
    belief, doubt = opinion.belief, opinion.uncertainty[..., None] / opinion.belief.shape[-1]
    return torch.where(doubt > 0, belief / doubt.clamp(min=1e-12), belief)


def log_evidence(evidence: Tensor) -> Tensor:
    """Logarithms of evidence (..., k), bounded from below.

    Many classes without evidence must not outweigh one with evidence: their least is so small that
    all of them together count little, even after a square root.
    """
    k = evidence.shape[-1]
    least = LEAST_EVIDENCE if k < MANY_CLASSES else (0.01 / k) ** 2
    return (evidence + least).log()


def fold_positions(task: Task, members: int, folds: int) -> tuple[Tensor, Tensor]:
    """Positions of each member's training rows and held-out rows, (members, rows) each."""
    # At random: stratified folds made test labels less likely in all six trials on vowel, segment
    # and digits, and a row's own candidates would change who predicts it.
    seed, partitions = task.seeds[0], range(-(-members // folds))
    pairs = [fold_indices(len(task), folds, seed_of(seed, "fold", number)) for number in partitions]
    train, test = (torch.cat(part)[:members] for part in zip(*pairs, strict=True))
    return train, test


def fold_task(task: Task, positions: Tensor) -> Task:
    """A task with one run for each member, on its rows (members, rows)."""
    members = len(positions)
    seeds = tuple(seed_of(task.seeds[0], "member", member) for member in range(members))
    rows, at = task.rows.repeated(members), positions.to(task.rows.indices.device)
    where = positions.to(task.prior.device)
    weight = task.weight[0][where]
    has_weight = weight.any(-1, keepdim=True)  # all rows of a fold's complement may have none
    return Task.of(
        replace(rows, indices=rows.indices.gather(1, at)),
        task.candidates[0][where],
        seeds,
        task.prior[0][where],
        torch.where(has_weight, weight, 1.0),
    )


def fold_networks(method: Auto, task: Task) -> FoldPart:
    """Train networks, each on the rows of its folds, or all on all rows if these are few."""
    inner, count = method.networks(task), method.count(task)
    if len(task) < FEWEST_ROWS:
        positions = torch.arange(len(task)).expand(count, -1)
        train = test = positions
    else:
        train, test = fold_positions(task, count, method.folds)
    held_out = fold_task(task, test)
    validation = held_out if method.early_stopping else None
    trained = inner.fit(fold_task(task, train), validation=validation)
    assert isinstance(trained, Networks)
    opinion = trained.predict(held_out.rows)
    nothing = trained.label_weights[:1, :0]
    fitted = replace(
        trained,
        method=replace(inner, members=count),
        label_weights=nothing,
        opinion=Opinion.of_probability(nothing),
    )
    reaches_all = len(test) >= method.folds or train is test
    seen = None if reaches_all else fitted.predict(task.rows)[0]
    return FoldPart(fitted, test, opinion, method.folds, seen)


def fold_trees(method: Auto, task: Task) -> FoldPart:
    """Grow forests on label weights, each on the rows of its folds."""
    from sklearn.ensemble import RandomForestRegressor

    n, folds = len(task), method.folds
    count = max(folds, method.count(task) // folds * folds)
    work = n * task.k * math.sqrt(math.prod(task.rows.shape))
    trees = max(10, round(TREES / count * min(1.0, TREE_WORK / work)))
    leaf = -(-n // LEAF_ROWS)
    options: Any = {"max_features": "sqrt", "oob_score": True, "min_samples_leaf": leaf}
    train, test = fold_positions(task, count, method.folds)
    held_out = fold_task(task, test)
    jobs: Any = parallel_config("threading", n_jobs=torch.get_num_threads())
    with jobs:  # of trees that grow; predictions use one thread, and add up in one order
        forest = Wrapped(RandomForestRegressor(trees, **options), rounds=2)
        fitted = forest.fit(fold_task(task, train)).without_training_rows()
    everyone = Forest.of(fitted.estimators).to(task.rows.device)  # equally many trees each
    return FoldPart(forest_model(everyone), test, fitted.predict(held_out.rows), method.folds)


@dataclass(frozen=True)
class OneStack:
    """The learners of one run, and how their evidence is combined."""

    parts: Mapping[str, Networks | WrappedModels]  # "network" and "trees", with all members
    powers: Mapping[str, float] = field(default_factory=dict)  # exponents; 1 without held-out rows
    offset: float = 0.0  # added to the logarithm of the evidence
    mistakes: float = 0.0  # share of rows that mislead all annotators
    held_out: Opinion | None = None  # (n, ...): calibrated, by members that did not see the row
    opinion: Opinion | None = None  # (n, ...): of the training rows' labels

    def combined(self, evidence: Evidence) -> Opinion:
        """The opinion of rows with this evidence (..., k) of each part."""
        scores: Any = sum(
            self.powers.get(name, 1.0) * log_evidence(support) for name, support in evidence.items()
        )
        amount = strength(evidence) * math.exp(self.offset)
        return Opinion.of_evidence(scores.softmax(-1) * amount.clamp(max=MOST_EVIDENCE)[..., None])

    def predict(self, rows: Rows) -> Opinion:
        """The opinion of other rows of the run, (n, ...)."""
        opinions = {name: part.predict(rows)[0] for name, part in self.parts.items()}
        return self.combined({name: evidence_of(opinion) for name, opinion in opinions.items()})

    def weighed(self, parts: Mapping[str, FoldPart], answers: Answers) -> Self:
        """Fit the exponents, drop learners without use, and set the held-out opinions."""
        n = len(answers.weight)
        once = {name: part.evidence(n, 1) for name, part in parts.items()}
        is_held_out = np.logical_and.reduce([number > 0 for _, number in once.values()])
        rows = answers.judged & is_held_out
        if not rows.any():  # nothing to go by
            return self
        evidence = {name: e[rows] for name, (e, _) in once.items()}
        stack, judged = self.fitted_to(evidence, answers.part(rows))
        useful = stack.useful(evidence, judged)
        if len(useful) < len(parts):
            smaller = {name: parts[name] for name in useful}
            fitted = {name: self.parts[name] for name in useful}
            return replace(self, parts=fitted).weighed(smaller, answers)
        twice = {name: part.evidence(n, 2) for name, part in parts.items()}
        if any((number < 2).any() for _, number in twice.values()):
            held_out = stack.combined({name: e for name, (e, _) in once.items()})
            return replace(stack, held_out=held_out)
        # A mean of members is more accurate than one of them, and less sure. The factor that
        # corrects this is known for two members, and changes as 1 / members.
        factor = sharpening(stack, {name: e[rows] for name, (e, _) in twice.items()}, judged)
        evidence = {name: e for name, (e, _) in twice.items()}
        held_out = stack.sharpened(factor).combined(evidence)
        members = min(len(part.held_out) for part in parts.values())
        factor += (factor - 1) * (1 - 2 / members)
        return replace(stack.sharpened(factor), held_out=held_out)

    def fitted_to(self, evidence: Evidence, answers: Answers) -> tuple[Self, Answers]:
        """Fit the exponents to rows with this evidence; return also what their answers tell.

        Distractors and annotators are estimated with the model: in turns.
        """
        if answers.codes is not None:
            return self.fitted_to_crowd(evidence, answers)
        stack = self
        for turn in range(TURNS):
            if turn:
                answers = answers.given(stack.probability(evidence))
            stack = self.with_numbers(evidence, exponents(evidence, answers)[0])
        return stack, answers

    def fitted_to_crowd(self, evidence: Evidence, answers: Answers) -> tuple[Self, Answers]:
        """As `fitted_to`, for answers: weigh the shares of misleading rows by their likelihood.

        If annotators doubt the same rows as the model, they do not tell how sure it may be. So far
        as they do, exponents are those for annotators who err independently of one another.
        """
        assert answers.codes is not None
        careful, _ = exponents(evidence, answers)
        numbers, likely = [], []
        for mistakes in annotators.MISTAKES:
            stack, told = self.with_numbers(evidence, careful), answers
            for _ in range(TURNS - 1):
                told = answers.told(stack.probability(evidence), mistakes)
                fitted, loss = exponents(evidence, told)
                stack = self.with_numbers(evidence, fitted)
            numbers.append(fitted)
            likely.append(told.total - loss)
        weights = annotators.weights_of_mistakes(likely)
        sure, mistakes = weights @ np.stack(numbers), float(weights @ annotators.MISTAKES)
        probability = self.with_numbers(evidence, careful).probability(evidence)
        shared = annotators.shared_doubt(answers.codes, probability) - annotators.LEAST_SHARED
        shared /= 1 - annotators.LEAST_SHARED
        stack = self.with_numbers(evidence, shared * careful + (1 - shared) * sure)
        told = answers.told(stack.probability(evidence), mistakes)
        likelihood = shared * answers.likelihood + (1 - shared) * told.likelihood
        return replace(stack, mistakes=mistakes), replace(answers, likelihood=likelihood)

    def with_numbers(self, evidence: Evidence, numbers: Floats) -> Self:
        """A stack with the numbers of `exponents`."""
        powers = dict(zip(evidence, np.exp(numbers[:-1]).tolist(), strict=True))
        return replace(self, powers=powers, offset=float(numbers[-1]))

    def probability(self, evidence: Evidence) -> Floats:
        """The probability (rows, k) of rows with this evidence of each part."""
        return np.asarray(self.combined(evidence).probability.numpy())

    def useful(self, evidence: Evidence, answers: Answers) -> list[str]:
        """Names of the parts to keep: those that count, but no trees that predict distractors.

        Networks that have not learned depend on nothing: they are no reason to drop trees.
        """
        least = LEAST_SHARE * sum(self.powers.values())
        names = [name for name, power in self.powers.items() if power >= least]
        if answers.codes is not None or "trees" not in names or "network" not in evidence:
            return names
        networks, candidates = {"network": evidence["network"]}, answers.candidates
        alone, _ = self.fitted_to(networks, answers)
        both = [self.probability(evidence), alone.probability(networks)]
        more, less = (dependence(candidates, p, answers.weight) for p in both)
        covered = [candidates[np.arange(len(p)), p.argmax(-1)] for p in both]
        rate, rate_alone = (np.average(is_in, weights=answers.weight) for is_in in covered)
        has_learned = rate_alone >= rate - MOST_LACKING
        return ["network"] if has_learned and more > less + MORE_DEPENDENT else names

    def sharpened(self, factor: float) -> Self:
        """A stack whose powers are multiplied by a factor."""
        return replace(self, powers={name: factor * g for name, g in self.powers.items()})

    def with_labels(self, parts: Mapping[str, FoldPart], answers: Answers) -> Self:
        """Set the opinion of the training rows: held-out evidence times the answers' likelihood."""
        held_out, n = self.held_out, len(answers.weight)
        if held_out is None:
            used = {name: parts[name] for name in self.parts}
            evidence = {name: p.evidence(n, len(p.held_out))[0] for name, p in used.items()}
            held_out = self.combined(evidence)
        if answers.codes is not None:
            is_seen = self.held_out is None or any(part.seen is not None for part in parts.values())
            opinion = answers.resolved(held_out, self.mistakes, is_seen=is_seen)
            return replace(self, opinion=opinion)
        if self.held_out is not None:
            answers = answers.given(held_out.probability.numpy())
        prior = torch.from_numpy(answers.within_candidates())
        candidates = torch.from_numpy(answers.candidates)
        evidence_here = evidence_of(held_out) * prior * candidates.sum(-1, keepdim=True)
        opinion = Opinion.of_evidence(evidence_here, prior).within(candidates)
        return replace(self, opinion=opinion)


def sharpening(stack: OneStack, evidence: Evidence, answers: Answers) -> float:
    """Return the factor from 1 to 1.5 on the powers that suits these rows best."""

    def loss(factor: float) -> float:
        probability = stack.sharpened(factor).probability(evidence)
        return float(-(answers.weight * np.log((probability * answers.likelihood).sum(-1))).sum())

    return float(minimize_scalar(loss, bounds=(1.0, 1.5), method="bounded").x)


def strength(evidence: Evidence) -> Tensor:
    """The sum of the networks' evidence, (...): small for rows unlike the others.

    It is 1 for trees, and for the networks of Proden, which have no evidence.
    """
    total: Tensor = evidence.get("network", next(iter(evidence.values()))).sum(-1)
    return total if "network" in evidence else torch.ones_like(total)


def exponents(evidence: Evidence, answers: Answers) -> tuple[Floats, float]:
    """Return what makes answers most likely, and the negative logarithm of that likelihood.

    These are the logarithms of the powers of each part's evidence (rows, k), and the offset. A
    penalty keeps them near those that change nothing, if there are few rows.
    """
    logs = torch.stack([*map(log_evidence, evidence.values())]).numpy()  # (parts, rows, k)
    total = strength(evidence).numpy()
    likelihood, weight, k = answers.likelihood, answers.weight, logs.shape[-1]

    def loss(numbers: Floats) -> tuple[float, Floats]:
        powers, offset = np.exp(numbers[:-1]), numbers[-1]
        shares = softmax(np.tensordot(powers, logs, 1), axis=-1)
        amount = np.minimum(total * math.exp(offset), MOST_EVIDENCE)
        mean = (likelihood * shares).sum(-1)  # rows of the likelihood sum to 1
        value = weight * (np.log(amount + k) - np.log(amount * mean + 1))
        by_mean = -weight * amount / (amount * mean + 1)
        by_score = by_mean[:, None] * shares * (likelihood - mean[:, None])
        by_amount = weight * (1 / (amount + k) - mean / (amount * mean + 1)) * amount
        by_amount *= amount < MOST_EVIDENCE
        gradient = np.append(powers * np.einsum("nk,pnk->p", by_score, logs), by_amount.sum())
        away = np.append(powers * (powers.sum() - 1), offset / 4)
        penalty = (powers.sum() - 1) ** 2 / 2 + offset**2 / 8
        return float(value.sum() + penalty), gradient + away

    start = np.append(np.full(len(logs), -math.log(len(logs))), 0.0)
    bounds = [(-6.0, 2.0)] * len(logs) + [(-10.0, math.log(MOST_EVIDENCE))]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return best.x, float(best.fun)


@dataclass(frozen=True)
class Stack(Fitted):
    """What `Auto` learned from R runs."""

    method: Auto
    runs: tuple[OneStack, ...]
    label_weights: Tensor
    opinion: Opinion
    history: History
    held_out: Opinion | None = None  # (R, n, ...): calibrated, by members that did not see the row

    @classmethod
    def joined(cls, method: Auto, runs: list[OneStack]) -> Self:
        """Several runs of equally many rows as one result."""
        opinion = stacked(run.opinion for run in runs if run.opinion is not None)
        held_out = [run.held_out for run in runs if run.held_out is not None]
        networks = [run.parts["network"].history for run in runs if "network" in run.parts]
        losses = [torch.stack([h.loss.mean(-1) for h in networks], -1)] if networks else []
        history = History([*losses[0]] if len(networks) == len(runs) else [])
        return cls(
            method,
            tuple(replace(run, opinion=None, held_out=None) for run in runs),
            opinion.probability,
            opinion,
            history,
            stacked(held_out) if len(held_out) == len(runs) else None,
        )

    @property
    def device(self) -> torch.device:
        device: torch.device = next(iter(self.runs[0].parts.values())).device
        return device

    @property
    def networks(self) -> tuple[Networks, ...]:
        """The networks of each run; none if a run has no networks."""
        parts = [part for run in self.runs for part in run.parts.values()]
        networks = tuple(part for part in parts if isinstance(part, Networks))
        return networks if len(networks) == len(self.runs) else ()

    @property
    def learners(self) -> str:
        """Which learners the first run uses: "networks and trees (powers 60% : 40%)"."""
        run = self.runs[0]
        names = {"network": "networks", "trees": "trees"}
        total = sum(run.powers.get(name, 1.0) for name in run.parts)
        shares = [f"{run.powers.get(name, 1.0) / total:.0%}" for name in run.parts]
        words = " and ".join(names[name] for name in run.parts)
        return words if len(run.parts) == 1 else f"{words} (powers {' : '.join(shares)})"

    def without_training_rows(self) -> Self:
        nothing = self.label_weights[:, :0]
        opinion = Opinion.of_probability(nothing)
        return replace(self, label_weights=nothing, opinion=opinion, held_out=None)

    def part(self, runs: slice) -> Self:
        return replace(
            self,
            runs=self.runs[runs],
            label_weights=self.label_weights[runs],
            opinion=self.opinion[runs],
            history=self.history.part(runs),
            held_out=None if self.held_out is None else self.held_out[runs],
        )

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        if attack is not None:
            rows = self.attacked(rows, attack, truth)
        return stacked(run.predict(rows.part([at])) for at, run in enumerate(self.runs))

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        """Attack the networks by their gradient, or all learners by an attack without one."""
        if not attack.needs_gradient:
            return super().attacked(rows, attack, truth)
        moved = []
        for at, run in enumerate(self.runs):
            if "network" not in run.parts:
                raise InputError("Trees have no gradient to attack them with. Use Square.")
            labels = None if truth is None else truth[at : at + 1]
            one = run.parts["network"].attacked(rows.part([at]), attack, labels)
            moved.append(one.x(one.everything))
        return Rows.scaled(torch.cat(moved))
