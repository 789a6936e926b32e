"""Answers of several annotators, in any form."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from robustpll._display import ROWS, Displayed
from robustpll.errors import InputError, is_share, some_of
from robustpll.labels import parsing
from robustpll.labels.parsing import SETS, Ints, aligned, coded, missing_cells, refuse_rows

DUPLICATES = ("error", "last", "set")
MOST_CELLS = 2**28  # of a long table after it became wide


@dataclass(frozen=True, init=False)
class Not:
    """An answer that excludes classes: all the others remain.

    >>> from robustpll import Candidates, Votes
    >>> Candidates.of(Votes([[Not("cat")], ["cat"], ["dog"], ["emu"]])).sets()[0] == {"dog", "emu"}
    True
    """

    labels: tuple[Any, ...]

    def __init__(self, *labels: Any) -> None:
        if not labels:
            raise InputError("Not() excludes no class. Name at least one, or answer Unsure().")
        parsing.distinct_of(labels)  # refuses lists
        object.__setattr__(self, "labels", labels)


@dataclass(frozen=True)
class Sure:
    """A class with the annotator's confidence; the rest is spread equally over other classes.

    >>> from robustpll import Candidates, Votes
    >>> Candidates.of(Votes([[Sure("cat", 0.8)], ["dog"], ["emu"]])).prior[0].round(2)
    array([0.8, 0.1, 0.1], dtype=float32)
    """

    label: Any
    confidence: float

    def __post_init__(self) -> None:
        if not is_share(self.confidence) or not self.confidence:
            rule = "confidence must be a number above 0, and at most 1"
            raise InputError(f"Sure({self.label!r}, {self.confidence!r}): {rule}.")
        parsing.distinct_of([self.label])  # refuses lists


@dataclass(frozen=True)
class Unsure:
    """An answer of someone who cannot tell: it says nothing, but the row is not unanswered.

    >>> from robustpll import Candidates, Votes
    >>> Candidates.of(Votes([[Unsure()], ["cat"], ["dog"]])).prior[0]
    array([0.5, 0.5], dtype=float32)
    """


@dataclass(frozen=True)
class Spread:
    """How an answer is spread over classes: shares of some, and the rest equally over others."""

    names: tuple[Any, ...] = ()
    shares: tuple[float, ...] = ()
    rest: float = 0.0

    def over(self, index: Mapping[Any, int]) -> NDArray[np.float64]:
        """Return the share of each class, (k,); `index` has the position of each name."""
        others = len(index) - len(self.names)
        if self.rest and not others:
            fault = f"An answer about {some_of(map(repr, self.names))} leaves no other class"
            remedy = "Name all classes: Candidates.of(y, classes=[...])"
            raise InputError(f"{fault} to choose. {remedy}.")
        vector = np.full(len(index), self.rest / max(others, 1))
        vector[[index[name] for name in self.names]] = self.shares
        return vector

    def renamed(self, rename: Callable[[Any], Any]) -> Any:
        """Return the answer with other names; without those that become None."""
        if not self.names:  # Unsure
            return self
        shares: dict[Any, float] = {}
        for name, share in zip(map(rename, self.names), self.shares, strict=True):
            if name is not None:
                shares[name] = shares.get(name, 0.0) + share
        if self.rest:  # Not, or Sure whose class became a gap
            return Spread((*shares,), (*shares.values(),), self.rest) if shares else None
        total = sum(shares.values())
        return plain_answer({name: share / total for name, share in shares.items() if total})


Floats = NDArray[np.float64]
Names = NDArray[Any]  # of classes, (k,)
Placed = tuple[int, int, Spread]  # row, column, and answer
NO_SETS = (dict, Not, Sure, Unsure)
SOFT = (*SETS, *NO_SETS, Spread)


def plain_answer(cell: Any) -> Any:
    """Return a class if an answer is certain of one, None if it has none, or else a `Spread`."""
    if isinstance(cell, Unsure):
        return Spread()
    if isinstance(cell, Not):
        names = tuple(dict.fromkeys(cell.labels))
        return Spread(names, (0.0,) * len(names), 1.0)
    if isinstance(cell, Sure):
        rest = 1.0 - cell.confidence
        return Spread((cell.label,), (cell.confidence,), rest) if rest else cell.label
    if isinstance(cell, dict):
        is_valid = all(map(is_share, cell.values())) and abs(sum(cell.values()) - 1) < 1e-3
        if cell and not is_valid:
            rule = "probabilities must be numbers from 0 to 1 with the sum 1"
            raise InputError(f"Votes holds {some_of([cell])}: {rule}. Divide them by their sum.")
        shares = {name: share for name, share in cell.items() if share}
        total = sum(shares.values())
    elif isinstance(cell, SETS):
        shares = dict.fromkeys(sorted(parsing.distinct_of(cell), key=str), 1.0)
        total = len(shares)
    else:
        return cell
    if len(shares) < 2:
        return next(iter(shares), None)
    return Spread((*shares,), tuple(share / total for share in shares.values()))


@dataclass(frozen=True, eq=False, repr=False)
class Votes(Displayed):
    """Answers of several annotators, one column each; their shares become the prior.

    Parameters
    ----------
    answers : array, list of lists or DataFrame of shape (n, annotators)
        A cell is a class name; a set or list of names, of which one is right; ``Not("a")``, any
        class but this; ``Sure("a", 0.8)``, a class with a confidence; a dict of probabilities; or
        ``Unsure()``. ``None``, ``NaN``, ``pandas.NA``, the empty string and an empty set mean "no
        answer".
    unanswered : {"error", "all classes"}
        How to treat a row without answers: refuse it, or make every class a candidate.
    missing : str or int, optional
        Another value that means "no answer", such as -1 in an array of integers.
    unsure : str or int, optional
        A value that means `Unsure()`, such as "cannot tell".

    Examples
    --------
    >>> from robustpll import Candidates
    >>> votes = Votes([["cat", "dog", "cat"], ["dog", None, {"cat", "dog"}]])
    >>> Candidates.of(votes).prior.round(2)
    array([[0.67, 0.33],
           [0.25, 0.75]], dtype=float32)
    """

    answers: Any
    unanswered: Literal["error", "all classes"] = "error"
    missing: str | int | None = None
    unsure: str | int | None = None

    @classmethod
    def long(
        cls,
        items: ArrayLike,
        annotators: ArrayLike,
        labels: Iterable[Any],
        confidences: ArrayLike | None = None,
        *,
        duplicates: Literal["error", "last", "set"] = "error",
        **options: Any,
    ) -> Self:
        """Read a long table, with one answer per row; items keep the order in which they appear.

        Parameters
        ----------
        items, annotators, labels, confidences : arrays of the same length
            The name of the item, who answered, the answer, and how sure it is, from 0 to 1.
        duplicates : {"error", "last", "set"}
            What to do if someone answers twice about an item, and differently: refuse the table,
            keep the last answer, or keep both classes as a set.
        **options
            Further arguments of `Votes`.

        Examples
        --------
        >>> votes = Votes.long(["x", "y", "x"], ["ann", "ann", "bob"], ["cat", "dog", "dog"])
        >>> votes.items.tolist(), votes.annotators
        (['x', 'y'], ('ann', 'bob'))
        >>> votes.codes()[0]
        array([[ 0,  1],
               [ 1, -1]])
        """
        import pandas as pd

        if duplicates not in DUPLICATES:
            raise InputError(f"duplicates={duplicates!r}: it must be one of {DUPLICATES}.")
        labels = (tuple(one) if isinstance(one, np.ndarray) else one for one in labels)
        cells = parsing.object_array([*labels])
        columns = [np.asarray(one, dtype=object) for one in (items, annotators)]
        if confidences is not None:
            columns.append(np.asarray(confidences, dtype=np.float64))
        if any(len(one) != len(cells) for one in columns):
            sizes = some_of([*map(len, columns), len(cells)])
            raise InputError(f"The columns of Votes.long have {sizes} rows: pass equal lengths.")
        if confidences is not None:
            if duplicates == "set":
                raise InputError("duplicates='set' and confidences are passed: pass 'last'.")
            plain = (options.get("missing"), options.get("unsure"))
            cells = _with_confidences(cells, columns[-1], plain)
        (row, row_names), (column, column_names) = map(pd.factorize, columns[:2])
        refuse_rows((row < 0) | (column < 0), "Votes.long has no item or annotator", "Name both.")
        known = ~missing_cells(cells, also=(options.get("missing"),))
        answers = zip(row[known], column[known], cells[known], strict=True)
        return cls(_wide(answers, row_names, column_names, duplicates), **options)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cells().shape

    @property
    def annotators(self) -> tuple[str, ...]:
        """The names of the annotators: columns of a DataFrame, or numbers from 0."""
        columns = getattr(self.answers, "columns", None)
        return tuple(map(str, range(self.shape[1]) if columns is None else columns))

    @property
    def items(self) -> NDArray[Any]:
        """The names of the items, (n,): the index of a DataFrame, or numbers from 0."""
        return np.asarray(getattr(self.answers, "index", np.arange(len(self))))

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, rows: Any) -> Self:
        """Select rows, as scikit-learn's splitters do."""
        rows = parsing.row_index(rows)
        answers = self.answers.iloc[rows] if hasattr(self.answers, "iloc") else self._cells()[rows]
        return replace(self, answers=answers)

    def _facts(self) -> str:
        try:
            return f"{len(self)} rows, {self._first().shape[1]} annotators"
        except (TypeError, ValueError):  # nothing was checked yet
            return super()._facts()

    def _table(self) -> Any:
        return self._first()

    def _first(self) -> Any:
        """The first rows as a DataFrame; others are not looked at."""
        import pandas as pd

        first: Any = self.answers
        first = first.head(ROWS) if hasattr(first, "head") else pd.DataFrame(first[:ROWS])
        return first.to_pandas() if hasattr(first, "to_pandas") else first

    def renamed(self, mapping: Mapping[Any, Any] | Callable[[Any], Any]) -> Self:
        """Return the answers with other class names; a name that becomes None or "" is a gap.

        >>> Votes([["Cat", "cat", "?"]]).renamed({"Cat": "cat", "?": None}).answers
        array([['cat', 'cat', None]], dtype=object)
        """
        import pandas as pd

        if not callable(mapping) and not hasattr(mapping, "keys"):
            rule = "it must be a dict from class names to new ones, or a function"
            raise InputError(f"mapping={mapping!r}: {rule}.")
        names = {} if callable(mapping) else dict(mapping)
        lookup = mapping if callable(mapping) else lambda name: names.get(name, name)
        seen = {self.missing, self.unsure}

        def rename(name: Any) -> Any:
            seen.add(name)
            new = lookup(name)
            return None if isinstance(new, str) and not new else new

        cells: Any = self._plain_cells().astype(object)
        gaps = missing_cells(cells, also=(self.missing, self.unsure))
        for row, column in np.argwhere(~gaps):
            cell = cells[row, column]
            cells[row, column] = cell.renamed(rename) if isinstance(cell, Spread) else rename(cell)
        if absent := [name for name in names if name not in seen]:
            message = f"mapping names classes that nobody answered ({some_of(map(repr, absent))})."
            warnings.warn(message, UserWarning, stacklevel=2)
        if parsing.is_frame(self.answers):
            cells = pd.DataFrame(cells, self.answers.index, self.answers.columns)
        return replace(self, answers=cells)

    def codes(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return each answer as an index (n, annotators), -1 for none, and the class names.

        Answers that are not certain of one class (sets, `Not`, `Sure`, probabilities, `Unsure`)
        are -1, too: reliabilities of annotators are estimated without them. `shares` and `table`
        include them.
        """
        answers, _, names = self._parsed()
        return answers, names

    def shares(self) -> tuple[sparse.csr_array, NDArray[Any]]:
        """Return how each answer is spread over the classes, and the class names.

        The sparse array has shape (n * annotators, k); answer j of row i is in its row
        ``i * annotators + j``. A class has share 1; a set is spread equally; no answer is 0.

        >>> shares, names = Votes([["cat", {"cat", "dog"}], ["dog", None]]).shares()
        >>> shares.toarray()
        array([[1. , 0. ],
               [0.5, 0.5],
               [0. , 1. ],
               [0. , 0. ]])
        """
        answers, soft, names = self._parsed()
        flat = answers.ravel()
        hard = np.flatnonzero(flat >= 0)
        parts = [(np.ones(len(hard)), hard, flat[hard])]
        for vector, row, column in _vectors(soft, names):
            used, position = np.flatnonzero(vector), row * answers.shape[1] + column
            where = np.repeat(position, len(used)), np.tile(used, len(position))
            parts.append((np.tile(vector[used], len(position)), *where))
        values, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        return sparse.csr_array((values, (rows, columns)), (len(flat), len(names))), names

    def table(self) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return the number of votes (n, k) of each row for each class, and the class names."""
        votes, _, names = self.counted()
        return votes, names

    def counted(self, classes: Names | None = None) -> tuple[NDArray[np.float64], Ints, Names]:
        """Return votes (n, k), of which each answer has 1 in all, codes, and class names.

        `classes` that nobody names may have a share of `Not` and `Sure`.
        """
        answers, soft, names = self._parsed(classes)
        votes = votes_for(answers, len(names))
        for vector, row, _ in _vectors(soft, names):
            np.add.at(votes, row, vector)
        return votes, answers, names

    def named_in(self) -> dict[Any, int]:
        """Return the number of rows in which each class is named, and not excluded."""
        answers, soft, names = self._parsed()
        is_named, index = votes_for(answers, len(names)) > 0, {n: i for i, n in enumerate(names)}
        for row, _, answer in soft:
            pairs = zip(answer.names, answer.shares, strict=True)
            is_named[row, [index[name] for name, share in pairs if share]] = True
        return dict(zip(names.tolist(), is_named.sum(0).tolist(), strict=True))

    def counts(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the number of votes for each of these classes in each row, (n, k)."""
        votes, _, names = self.counted(classes)
        return aligned(votes, names, classes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the answers as strings, "" for gaps: scikit-learn reads them to choose folds.

        Splitters that stratify get the likeliest classes. With `cv=3`, folds are not stratified.
        """
        from robustpll.labels.candidates import (
            STRATIFIED,
            Candidates,
            refuse_encoding,
            wants_labels,
        )

        if wants_labels(STRATIFIED - {"check_cv"}):
            return Candidates.of(self).likeliest(random_state=0).astype(dtype or np.int64)
        refuse_encoding()
        cells = self._plain_cells()
        gaps = missing_cells(cells, also=(self.missing,))
        return np.array(np.where(gaps, "", cells.astype(str)), dtype=dtype, copy=copy)

    def _parsed(self, classes: Names | None = None) -> tuple[Ints, list[Placed], Names]:
        """Return codes (n, annotators), the place and content of soft answers, and class names."""
        if self.unanswered not in ("error", "all classes"):
            rule = "it must be 'error' or 'all classes'"
            raise InputError(f"Votes(unanswered={self.unanswered!r}): {rule}.")
        cells = self._plain_cells()
        answered = ~missing_cells(cells, also=(self.missing,))
        if self.unanswered == "error":
            remedy = "Drop these rows, or pass Votes(answers, unanswered='all classes')."
            refuse_rows(~answered.any(-1), "Votes has no answer", remedy)
        is_soft = _of_types(cells, Spread)
        soft = [(i, j, cells[i, j]) for i, j in np.argwhere(is_soft).tolist()]
        is_unsure = False if self.unsure is None else cells == self.unsure
        row, column = np.nonzero(answered & ~is_soft & ~np.asarray(is_unsure))
        named = [(i, name) for i, _, answer in soft for name in answer.names]
        values = [*cells[row, column].tolist(), *(name for _, name in named)]
        rows = np.concatenate([row, np.array([i for i, _ in named], dtype=np.int64)])
        code, names = coded(values, rows)
        kinds = {array.dtype.kind == "U" for array in (names, classes) if array is not None}
        if classes is not None and soft and len(kinds) == 1:
            more = np.union1d(names, classes)
            code, names = np.searchsorted(more, names)[code], more
        answers = np.full(cells.shape, -1)
        answers[row, column] = code[: len(row)]
        return answers, soft, names

    def _plain_cells(self) -> NDArray[Any]:
        """The cells, with one form for each kind of soft answer; see `plain_answer`."""
        cells = self._cells()
        if (is_soft := _of_types(cells, SOFT)).any():
            cells = cells.copy()
            cells[is_soft] = parsing.object_array([*map(plain_answer, cells[is_soft])])
        return cells

    def _cells(self) -> NDArray[Any]:
        cells = self.answers
        if isinstance(cells, Sequence):
            sizes = np.array([len(row) if isinstance(row, SETS) else 1 for row in cells])
            remedy = "Give each row one answer or None per annotator."
            refuse_rows(sizes < sizes.max(initial=0), "Votes has too few answers", remedy)
            if len(cells) and all(isinstance(row, list | tuple | np.ndarray) for row in cells):
                flat = parsing.object_array([cell for row in cells for cell in row])
                return flat.reshape(len(cells), -1)
            cells = np.array(cells, dtype=object)
        cells = cells.to_numpy() if hasattr(cells, "to_numpy") else np.asarray(cells)
        if cells.ndim != 2:
            rule = "Votes needs a table of shape (n, annotators), and not a label vector"
            raise InputError(f"{rule}; got an array of shape {cells.shape}.")
        return np.asarray(cells)


def _of_types(cells: NDArray[Any], kinds: Any) -> NDArray[np.bool_]:
    """Which cells are of these types; quick if none is."""
    types = {*map(type, cells.ravel().tolist())} if cells.dtype == object else ()
    if not any(issubclass(kind, kinds) for kind in types):
        return np.zeros(cells.shape, dtype=bool)
    is_kind = np.fromiter((isinstance(cell, kinds) for cell in cells.flat), bool, cells.size)
    return is_kind.reshape(cells.shape)


def _wide(answers: Iterable[Any], items: Any, annotators: Any, duplicates: str) -> Any:
    """Return a DataFrame of answers, from their row, column and content."""
    import pandas as pd

    if len(items) * len(annotators) > MOST_CELLS:
        size = f"{len(items):,} items and {len(annotators):,} annotators"
        raise InputError(f"Votes.long has {size}: too many. Merge those with few answers.")
    table = np.full((len(items), len(annotators)), None, dtype=object)
    for row, column, cell in answers:
        before = table[row, column]
        if before is None or before == cell or duplicates == "last":
            table[row, column] = cell
        elif duplicates == "set" and not isinstance(before, NO_SETS) | isinstance(cell, NO_SETS):
            both = ({*one} if isinstance(one, SETS) else {one} for one in (before, cell))
            table[row, column] = frozenset(chain(*both))
        else:
            who = f"{annotators[column]!r} answers {before!r} and {cell!r}"
            remedy = "Delete one, or pass duplicates='last' or duplicates='set'"
            raise InputError(f"Votes.long: {who} about item {items[row]!r}. {remedy}.")
    return pd.DataFrame(table, items, annotators)


def _with_confidences(
    cells: NDArray[Any], confidences: NDArray[Any], plain: tuple[Any, ...]
) -> NDArray[Any]:
    """Return the cells (n,) as `Sure` where there is a confidence, but for `plain` ones."""
    rated = ~np.isnan(confidences) & ~missing_cells(cells, also=plain)
    odd = rated & ((confidences <= 0) | (confidences > 1))
    refuse_rows(odd, "A confidence is not above 0, and at most 1,", "Divide percentages by 100.")
    cells = cells.copy()
    for row in np.flatnonzero(rated):
        if isinstance(cells[row], SOFT):
            raise InputError(f"Row {row} has a confidence for {cells[row]!r}, which is no class.")
        cells[row] = Sure(cells[row], float(confidences[row]))
    return cells


def _vectors(soft: list[Placed], names: Names) -> Any:
    """Yield the shares (k,) of each distinct answer, and the rows and columns where it is."""
    places: dict[Spread, list[tuple[int, int]]] = {}
    for row, column, answer in soft:
        places.setdefault(answer, []).append((row, column))
    index = {name: position for position, name in enumerate(names.tolist())}
    for answer, where in places.items():
        row, column = np.array(where).T
        yield answer.over(index), row, column


def votes_for(answers: Ints, k: int) -> Floats:
    """Return how many of the answers (n, annotators), -1 for none, name each class, (n, k)."""
    row, column = np.nonzero(answers >= 0)
    votes = np.zeros((len(answers), k))
    np.add.at(votes, (row, answers[row, column]), 1.0)
    return votes


def normalized(weights: Floats, otherwise: NDArray[np.floating] | float = 0.0) -> Floats:
    """Return rows (n, k) divided by their sums; a row of zeros becomes that of `otherwise`."""
    total = weights.sum(-1, keepdims=True)
    return np.asarray(np.where(total > 0, weights / np.where(total > 0, total, 1), otherwise))
