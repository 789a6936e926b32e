"""Reduction of sparse rows and of texts to a few numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError

MOST_COMPONENTS = 500
# Rows for each component, beyond the first 20: components learn all rows, and with many of them,
# rows that are held out from the networks and trees look easier to predict than new ones.
ROWS_PER_COMPONENT, FREE_COMPONENTS = 8, 20
MOST_WORDS = 20_000
FAINT = 1e-5  # share of the largest singular value; below it, components are rounding errors
TERMS: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float64}  # of words, not of pairs


@dataclass(frozen=True, eq=False)
class Reduction:
    """A truncated SVD of sparse rows, or of the TF-IDF of texts.

    >>> texts = ["a good film", "a bad film", "good acting", "bad acting"]
    >>> reduction = Reduction.of_texts(texts)
    >>> reduction.words
    ('acting', 'bad', 'film', 'good')
    >>> reduction.numbers(["good film", "", "unheard of"]).shape
    (3, 2)
    """

    components: NDArray[np.float32]  # (components, columns)
    words: tuple[str, ...] = ()  # of the columns, if rows are texts
    idf: NDArray[np.float32] | None = None  # (words,)

    @classmethod
    def of_sparse(cls, X: Any) -> Self:
        """Learn from rows (n, d) of at least two columns, with a fixed seed."""
        from sklearn.decomposition import TruncatedSVD

        n, d = X.shape
        most = min(MOST_COMPONENTS, max(FREE_COMPONENTS, n // ROWS_PER_COMPONENT))
        count = max(1, min(most, n // 2, d - 1))
        with np.errstate(invalid="ignore", divide="ignore"):  # shares of a variance of 0
            svd = TruncatedSVD(count, random_state=0).fit(X)
        kept = svd.singular_values_ > FAINT * svd.singular_values_[0]
        kept[0] = True  # even if all numbers are 0
        return cls(np.ascontiguousarray(svd.components_[kept], dtype=np.float32))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Self:
        """Learn from texts; at most 20,000 words, and two at least."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(max_features=MOST_WORDS, **TERMS)
        try:
            rows = vectorizer.fit_transform(texts)
        except ValueError:  # there is no word
            rows = np.zeros((0, 0))
        if rows.shape[1] < 2:
            raise InputError("has fewer than two different words of two letters")
        words = tuple(map(str, vectorizer.get_feature_names_out()))
        components = cls.of_sparse(rows).components
        return cls(components, words, vectorizer.idf_.astype(np.float32))

    def numbers(self, rows: Any) -> NDArray[np.float64]:
        """Reduce texts, or rows (n, d) that may be sparse, to (n, components)."""
        if self.words:
            from sklearn.feature_extraction.text import TfidfVectorizer

            vectorizer = TfidfVectorizer(vocabulary=self.words, **TERMS)
            vectorizer.idf_ = self.idf
            rows = vectorizer.transform(rows)
        return np.asarray(rows @ self.components.T.astype(np.float64))

    @property
    def is_sound(self) -> bool:
        """Whether its parts fit together; a file may hold anything."""
        count = len(self.words)
        is_plain = self.idf is None and not count
        is_text = self.idf is not None and self.idf.shape == (count,) and count == self.width
        are_words = all(isinstance(word, str) for word in self.words)
        is_matrix = self.components.ndim == 2 and self.components.dtype == np.float32
        return is_matrix and (is_plain or is_text) and are_words and len({*self.words}) == count

    @property
    def width(self) -> int:
        """The number of columns of the rows that it takes."""
        return int(self.components.shape[1])
