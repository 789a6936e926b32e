"""Which rows need a person, in which order, and why."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.clean.findings import names
from robustpll.clean.judge import Judgement
from robustpll.clean.query_order import order_of_asking
from robustpll.errors import refuse_other_than_share
from robustpll.estimator.abstention import mean_threshold
from robustpll.evaluate.missing_truth import suspicion

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

    What asking is worth is the expected number of labels that an answer puts right, its own and
    those of rows around it, if the rows before it are answered; see `order_of_asking`.
    """

    at: NDArray[np.int64]  # (m,): places in the table
    value: NDArray[np.float64]  # (m,): of asking
    kinds: tuple[str, ...]  # why each is here, in a word or two
    reasons: tuple[str, ...]  # and in a sentence

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
    refuse_other_than_share("error", error)
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
    chosen = np.flatnonzero(asked & ~judged.decided)
    at, value = order_of_asking(1 - certainty, judged.near[0], chosen)
    limit = max(UNSURE, float(np.quantile(judged.opinion.uncertainty, UNSURE_SHARE)))
    suspect = suspicion(judged.opinion, judged.candidates.matrix, "rival") > 0.5
    suspect &= judged.missing > (1 - certainty) / 2  # most of the doubt
    why = [
        _why(judged, int(row), bool(suspect[row]), contrary.get(int(row), []), limit) for row in at
    ]
    return Review(at, value, tuple(kind for kind, _ in why), tuple(w for _, w in why))


def _why(
    judged: Judgement, row: int, suspect: bool, contrary: list[int], limit: float
) -> tuple[str, str]:
    """The main kind of doubt about a row, and all doubts in a sentence."""
    classes, inside = judged.candidates.classes, judged.candidates.matrix[row]
    first, outside = classes[judged.resolved[row]], classes[judged.best_outside[row]]
    found: dict[str, str] = {}
    if suspect:
        found[MISSING] = f"looks like {outside}, which is no candidate"
    if contrary:
        others = ", ".join(map(str, contrary[:3]))
        found[TWIN] = f"nearly equals row {others}, but shares no candidate with it"
    if judged.opinion.uncertainty[row] > limit:
        found[UNKNOWN] = "unlike the other rows, so the model knows little of it"
    if inside.sum() > 1:
        rivals = np.where(inside, judged.probability[row], -1.0)
        rivals[judged.resolved[row]] = -1.0
        found[AMBIGUOUS] = f"{first} or {classes[rivals.argmax()]}"
    elif not suspect:
        found[AMBIGUOUS] = f"{first}, or perhaps {outside}, which is no candidate"
    why = [kind for kind in REASONS if kind in found]
    return why[0], "; ".join(found[kind] for kind in why)


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
