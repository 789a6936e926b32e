"""RobustPll+AtEns: an ensemble of RobustPll+At networks."""

from dataclasses import dataclass
from typing import ClassVar

from robustpll.methods.robust_pll_at import RobustPllAt


@dataclass(frozen=True)
class RobustPllAtEns(RobustPllAt):
    """Five RobustPll+At networks with initial weights and orders of their own, opinions averaged.

    Members may differ in their numbers, such as ``adversary=(0.01, 0.02, 0.05, 0.05, 0.1)``.
    ``RobustPllAtEns.paper()`` is the plain constructor.

    Examples
    --------
    >>> RobustPllAtEns().members
    5
    """

    name: ClassVar[str] = "robust_pll_at_ens"
    title: ClassVar[str] = "RobustPll+AtEns"
    family: ClassVar[str] = "ensemble"

    members: int = 5
