"""Which rows need a person, in which order, and why."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.clean.findings import names
from robustpll.clean.judge import Judgement
from robustpll.decisions import mean_threshold
from robustpll.errors import InputError, is_share

if TYPE_CHECKING:
    import pandas as pd

AMBIGUOUS, MISSING, TWIN, UNKNOWN = (
    "ambiguous",
    "truth missing",
    "contradicts twin",
    "unlike others",
)
REASONS = (MISSING, TWIN, UNKNOWN, AMBIGUOUS)  # the first that applies names the kind
UNSURE = 0.5  # uncommitted mass above which a row is unlike others, if also among the largest:
UNSURE_SHARE = 0.95


@dataclass(frozen=True, eq=False)
class Review:
    """Rows that need a person, the most worth asking about first.

    Attributes
    ----------
    at : int array of shape (m,)
        Their places in the table.
    value : array of shape (m,)
        What is gained by asking: the expected number of labels that an answer puts right, which is
        the probability that the resolved label is wrong. An answer also teaches the model, about
        as much whichever row it is for; so that does not change the order.
    kinds, reasons : tuple of str
        Why each is here: in a word or two, and in a sentence.
    """

    at: NDArray[np.int64]
    value: NDArray[np.float64]
    kinds: tuple[str, ...]
    reasons: tuple[str, ...]

    def first(self, count: int) -> Self:
        """The most worth asking about."""
        part = slice(count)
        return type(self)(self.at[part], self.value[part], self.kinds[part], self.reasons[part])

    def __len__(self) -> int:
        return len(self.at)


def review(
    judged: Judgement, rows: NDArray[np.int64], twins: "pd.DataFrame", error: float
) -> Review:
    """As few rows as leave, among all others, an expected share of wrong labels of `error`.

    Twins that contradict each other are always among them, whatever the probabilities say.
    """
    if not (is_share(error) and 0 < error < 1):
        msg = f"error must be a number between 0 and 1, without these; got {error!r}."
        raise InputError(msg)
    certainty = judged.confidence
    falling = np.sort(certainty)[::-1]
    threshold = mean_threshold(falling, 1 - falling, error)
    place = {int(row): at for at, row in enumerate(rows)}
    contrary: defaultdict[int, list[int]] = defaultdict(list)
    for one, other in zip(twins["row"], twins["twin"], strict=True):
        contrary[place[int(one)]].append(int(other))
        contrary[place[int(other)]].append(int(one))
    asked = certainty < threshold
    asked[list(contrary)] = True
    at = np.flatnonzero(asked & ~judged.decided)
    at = at[np.argsort(certainty[at], kind="stable")]
    limit = max(UNSURE, float(np.quantile(judged.opinion.uncertainty, UNSURE_SHARE)))
    why = [_why(judged, int(row), contrary.get(int(row), []), limit) for row in at]
    return Review(at, 1 - certainty[at], tuple(kind for kind, _ in why), tuple(w for _, w in why))


def _why(judged: Judgement, row: int, contrary: list[int], limit: float) -> tuple[str, str]:
    """The main kind of doubt about a row, and all doubts in a sentence."""
    classes, p = judged.candidates.classes, judged.probability[row]
    first = classes[judged.resolved[row]]
    found: dict[str, str] = {}
    if judged.missing[row] > (1 - judged.confidence[row]) / 2:  # most of the doubt
        found[MISSING] = f"looks like {classes[judged.best_outside[row]]}, which is no candidate"
    if contrary:
        others = ", ".join(map(str, contrary[:3]))
        found[TWIN] = f"nearly equals row {others}, but shares no candidate with it"
    if judged.opinion.uncertainty[row] > limit:
        found[UNKNOWN] = "unlike the other rows, so the model knows little of it"
    inside = np.where(judged.candidates.matrix[row], p, -1.0)
    if judged.candidates.matrix[row].sum() > 1:
        inside[judged.resolved[row]] = -1.0
        found[AMBIGUOUS] = f"{first} or {classes[inside.argmax()]}"
    kind = next((kind for kind in REASONS if kind in found), AMBIGUOUS)
    words = [found[each] for each in REASONS if each in found]
    return kind, "; ".join(words) or f"{names(judged, row)} is doubtful"


def review_frame(found: Review, judged: Judgement, rows: NDArray[np.int64]) -> "pd.DataFrame":
    """As it is written for people without a browser."""
    import pandas as pd

    return pd.DataFrame(
        {
            "row": rows[found.at],
            "value_of_asking": found.value,
            "why": found.kinds,
            "reason": found.reasons,
            "resolved_label": judged.labels[found.at],
            "confidence": judged.confidence[found.at],
            "candidates": [names(judged, each) for each in found.at],
        }
    )
