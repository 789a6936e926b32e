"""Validated candidate sets, from every accepted form of `y`."""

import sys
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from robustpll._display import ROWS, Displayed
from robustpll.errors import InputError, counted, some_of
from robustpll.labels import parsing
from robustpll.labels.votes import Votes, normalized

# These stratify rows, choose a splitter, or count classes (the last one, of a halving search): the
# likeliest class of each row suits them.
STRATIFIED = {"check_cv", "StratifiedKFold", "StratifiedGroupKFold", "StratifiedShuffleSplit"}
STRATIFIED |= {"RepeatedStratifiedKFold", "_check_input_parameters"}
WRAPPED = "To combine classifiers of scikit-learn, use PLLClassifier(Wrapped({name}(...)))."
REMEDIES = {
    "CalibratedClassifierCV": "Use model.recalibrate(X, y) with rows that were not trained on; "
    "RobustPLLClassifier is calibrated by fit.",
    "BaggingClassifier": f"Use members=10 of the classifier or its method. {WRAPPED}",
    "StackingClassifier": "Use RobustPLLClassifier, which stacks networks and trees by held-out "
    f"candidates. {WRAPPED}",
    "VotingClassifier": f"Use members=10, or average predict_proba of your models. {WRAPPED}",
    "AdaBoostClassifier": WRAPPED,
    "OneVsRestClassifier": "Use the classifier itself: it knows all classes.",
    "MultiOutputClassifier": "Use the classifier itself: it knows all classes.",
    "SelfTrainingClassifier": "Use the classifier itself: rows without a label have all classes as "
    "candidates. Candidates.of(y, unanswered='all classes') makes them.",
    "BaseThresholdClassifier": "Compare predict_proba with a threshold of your own.",
    "_BaseFilter": "Use SequentialFeatureSelector, which takes candidates.",
    "RFE": "Use SequentialFeatureSelector, which takes candidates.",
}
UNSCORED = "With candidates, pass no `scoring`, or robustpll.evaluate.reports.SCORERS."


@dataclass(frozen=True, eq=False, repr=False)
class Candidates(Displayed):
    """Validated candidate sets with a prior, made by `Candidates.of`.

    The constructor checks nothing. scikit-learn's splitters and searches accept candidates as `y`;
    those that stratify go by the likeliest class. Its meta-estimators and metrics refuse them.

    Attributes
    ----------
    matrix : bool array of shape (n, k)
        The candidate classes of each row; no row is empty.
    classes : array of shape (k,)
        The names of the classes.
    prior : float32 array of shape (n, k)
        Shares of votes, or uniform on the candidates; rows sum to 1 and are 0 elsewhere.
    answers : int array of shape (n, annotators), optional
        The class that each annotator named, -1 for none; None if `y` was not `Votes`, or if no
        answer is certain of one class.

    Examples
    --------
    >>> y = Candidates.of([{"cat"}, {"cat", "dog"}, {"bird", "dog"}])
    >>> y.classes
    array(['bird', 'cat', 'dog'], dtype='<U4')
    >>> y.matrix.astype(int)
    array([[0, 1, 0],
           [0, 1, 1],
           [1, 0, 1]])
    >>> y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """

    matrix: NDArray[np.bool_]
    classes: NDArray[Any]
    prior: NDArray[np.float32]
    answers: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        y: Any,
        *,
        classes: ArrayLike | None = None,
        unanswered: Literal["error", "all classes"] = "error",
        missing: str | int | None = None,
    ) -> Self:
        """Read candidates from any accepted form of `y`.

        Parameters
        ----------
        y : object
            A 0/1 or bool matrix of shape (n, k), dense, sparse or a DataFrame; a sequence, object
            array or Series of sets (or lists) of class names; a vector of labels, one candidate
            each; `Votes`; or `Candidates`.
        classes : array of shape (k,), optional
            The names of all classes, in the order of the columns. By default the sorted names that
            occur; ``0 .. k-1`` for a matrix; the column names of a DataFrame.
        unanswered : {"error", "all classes"}
            How to treat rows without a label (None, NaN, "", an empty set): refuse them, or make
            every class a candidate. `Votes` have such an option of their own.
        missing : str or int, optional
            Another label that means "no label", such as -1.

        Notes
        -----
        Pass ``Candidates.of(y)`` to scikit-learn's searches and ``cross_val_*``: they refuse lists
        of lists, and do not shuffle or stratify other forms than `Candidates` and labels. With
        ``method="predict_proba"``, they pass candidates on as a 0/1 matrix, without shares of
        votes, and take sets for labels.

        Examples
        --------
        >>> Candidates.of(["cat", "dog"], classes=["cat", "dog", "emu"]).sets()
        [frozenset({'cat'}), frozenset({'dog'})]
        >>> Candidates.of([0, 1, -1], missing=-1, unanswered="all classes").prior[2]
        array([0.5, 0.5], dtype=float32)
        """
        if unanswered not in ("error", "all classes"):
            raise InputError(f"unanswered={unanswered!r}: it must be 'error' or 'all classes'.")
        names = None if classes is None else parsing.checked_classes(classes)
        form, items = _form_of(y)
        if form == "matrix" and unanswered == "all classes":
            is_gap = ~parsing.as_binary(items).any(-1)
        elif form not in ("labels", "sets") or (unanswered == "error" and missing is None):
            return cls._of(y, names)
        else:
            is_gap = parsing.missing_labels(items, missing)
        if unanswered == "error":
            remedy = "Drop these rows, or pass unanswered='all classes'."
            parsing.refuse_rows(is_gap, "y has no label", remedy)
        known = cls._of(items[~is_gap], names)
        matrix = np.ones((len(items), len(known.classes)), dtype=bool)
        prior = np.full(matrix.shape, 1 / len(known.classes), dtype=np.float32)
        matrix[~is_gap], prior[~is_gap] = known.matrix, known.prior
        return cls(matrix, known.classes, prior)

    @classmethod
    def _of(cls, y: Any, classes: NDArray[Any] | None, further: bool = False) -> Self:
        """Read `y`; if `further`, classes that only `y` names follow the others."""
        matrix, names, prior, answers = _read(y, classes)
        if names is None:
            names = np.arange(matrix.shape[1]) if classes is None else classes
        if matrix.shape[1] != len(names):
            size = f"y has {counted(matrix.shape[1], 'column')} for {len(names)} classes"
            raise InputError(f"{size}: a 0/1 matrix has one column for each class.")
        if classes is None:
            classes = parsing.checked_classes(names)
        elif further and (names.dtype.kind == "U") == (classes.dtype.kind == "U"):
            classes = np.concatenate([classes, names[~np.isin(names, classes)]])
        matrix, prior = (parsing.aligned(table, names, classes) for table in (matrix, prior))
        if isinstance(y, Votes):  # without answers, every class is equally likely
            unanswered = ~matrix.any(-1)
            matrix[unanswered], prior[unanswered] = True, 1 / len(classes)
        if answers is not None:
            answers = parsing.moved_codes(answers, names, classes)
        return cls(matrix, classes, prior, answers)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of candidates of each row, (n,)."""
        return np.asarray(self.matrix.sum(-1, dtype=np.int64))

    def sets(self) -> list[frozenset[Any]]:
        """The candidates of each row by name."""
        return [frozenset(self.classes[row].tolist()) for row in self.matrix]

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: Any) -> Self:
        """Select rows; the classes stay the same."""
        rows = parsing.row_index(rows)
        answers = None if self.answers is None else self.answers[rows]
        return type(self)(self.matrix[rows], self.classes, self.prior[rows], answers)

    def likeliest(self, random_state: Any = None) -> NDArray[np.int64]:
        """Index of the class with the highest prior, (n,); ties are broken at random by the seed.

        >>> Candidates.of([{"cat"}, {"dog"}, {"cat", "dog"}]).likeliest(random_state=0)[:2]
        array([0, 1])
        """
        random = check_random_state(random_state).random_sample(self.shape)
        is_highest = self.prior == self.prior.max(-1, keepdims=True)
        return np.asarray(np.where(is_highest, random, -1.0).argmax(-1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The matrix; for scikit-learn's stratified splitters, the likeliest classes."""
        if wants_labels(STRATIFIED):
            return self.likeliest(random_state=0).astype(dtype or np.int64)
        if self.matrix.all(0).any():
            refuse_encoding()
        return np.array(self.matrix, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidates) and all(
            np.array_equal(getattr(self, field), getattr(other, field))
            for field in ("matrix", "classes", "prior")
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def _facts(self) -> str:
        n, k = self.shape
        average = f"{np.count_nonzero(self.matrix) / n:.2f}" if n else "no"
        return f"{n} rows, {k} classes, {average} candidates on average"

    def _table(self) -> Any:
        """The first rows: their most probable candidates, and the share of the first one."""
        import pandas as pd

        first = self[:ROWS]
        order = np.argsort(np.where(first.matrix, -first.prior, np.inf), kind="stable")
        ranked = zip(order, first.sizes, strict=True)
        names = [some_of(self.classes[row[:size]]) for row, size in ranked]
        return pd.DataFrame({"candidates": names, "highest prior": first.prior.max(-1).round(2)})


def wants_labels(stratified: set[str]) -> bool:
    """Tell whether one of these parts of scikit-learn asks for labels, one per row.

    Raises InputError if its meta-estimators or metrics do: they would take candidates for other
    things. They ask for an array, so that only the calling functions tell what it is for.
    """
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith("sklearn.") and frame.f_back:
        owner = frame.f_locals.get("self")
        names = {kind.__name__ for kind in type(owner).__mro__} | {frame.f_code.co_name}
        if names & stratified:
            return True
        for name in names & REMEDIES.keys():
            kind, remedy = type(owner).__name__, REMEDIES[name].format(name=name)
            raise InputError(f"{kind} needs one label per row, but y holds several. {remedy}")
        if frame.f_globals["__name__"].startswith("sklearn.metrics."):
            raise InputError(f"Metrics of scikit-learn need true labels. {UNSCORED}")
        frame = frame.f_back
    return False


def refuse_encoding() -> None:
    """Raise InputError in scikit-learn's `cross_val_predict` of probabilities.

    It replaces the values of each column by their numbers: names of annotators by 0, 1, ..., and
    the 1 of a class that is a candidate in all rows by 0.
    """
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith("sklearn.externals.") and frame.f_back:
        frame = frame.f_back
    if frame.f_code.co_name == "cross_val_predict":
        raise InputError(
            "cross_val_predict would change y before it fits. Use method='predict', or loop over "
            "the folds: model.fit(X[train], y[train]).predict_proba(X[test])."
        )


def candidates_with(y: Any, classes: NDArray[Any]) -> Candidates:
    """Read `y` with these classes first; other classes that it names follow."""
    return Candidates._of(y, classes, further=True)


def label_vector(y: Any) -> NDArray[Any] | None:
    """Return labels, one per row and all of one type; None if `y` has another form."""
    form, labels = _form_of(y)
    if form != "labels":
        return None
    parsing.refuse_odd_labels(labels)
    return parsing.array_of(labels.tolist()) if labels.dtype == object else np.asarray(labels)


def _form_of(y: Any) -> tuple[Literal["candidates", "votes", "matrix", "labels", "sets"], Any]:
    """Decide what `y` is, and return it with one item per row."""
    if y is None:
        raise InputError("This requires y to be passed, but the target y is None: pass candidates.")
    y = parsing.as_pandas(y)
    if isinstance(y, Candidates | Votes):
        return "votes" if isinstance(y, Votes) else "candidates", y
    if sparse.issparse(y) or (parsing.is_frame(y) and y.shape[1] != 1):
        return "matrix", y
    items = parsing.items_of(y)
    if items.ndim == 2:
        return "matrix", items
    has_sets = items.dtype == object and any(isinstance(item, parsing.SETS) for item in items)
    return "sets" if has_sets else "labels", items


def _read(
    y: Any, classes: NDArray[Any] | None
) -> tuple[NDArray[np.bool_], NDArray[Any] | None, NDArray[np.float32], NDArray[np.int64] | None]:
    """Return candidates (n, k), names of the columns (None: numbers), prior, and answers."""
    form, items = _form_of(y)
    if form == "candidates":
        return items.matrix, items.classes, items.prior, items.answers
    names: NDArray[Any] | None = None
    if form == "votes":
        counts, answers, names = items.counted(classes)
        shares = normalized(counts).astype(np.float32)
        is_hard = (answers >= 0).any() or not counts.any()
        return counts > 0, names, shares, answers if is_hard else None
    if form == "matrix":
        if parsing.is_frame(items) and not np.array_equal(items.columns, np.arange(items.shape[1])):
            names = parsing.checked_classes(items.columns)
        matrix = parsing.as_binary(items)
    else:
        rows = np.arange(len(items))
        if form == "sets":
            parsing.refuse_odd_sets(items)
            rows = np.repeat(rows, [len(row) for row in items])
            code, names = parsing.coded([name for row in items for name in row], rows)
        else:
            parsing.refuse_odd_labels(items)
            code, names = parsing.coded(items.tolist(), rows)
            names = names if items.dtype.kind in "OU" else names.astype(items.dtype)
        matrix = np.zeros((len(items), len(names)), dtype=bool)
        matrix[rows, code] = True
    remedy = "Every row needs at least one: drop these rows, or give them all classes."
    parsing.refuse_rows(~matrix.any(-1), "y has no candidate class", remedy)
    prior = np.divide(matrix, matrix.sum(-1, keepdims=True), dtype=np.float32)
    return matrix, names, prior, None
