"""RobustPll+Ens (Fuchs & Kalinke)."""

from dataclasses import dataclass
from typing import ClassVar

from robustpll.methods.base import Number
from robustpll.methods.robust_pll import RobustPll


@dataclass(frozen=True)
class RobustPllEns(RobustPll):
    """Five RobustPll networks under different ceilings of the divergence, their opinions averaged.

    ``RobustPllEns.paper()`` differs from the plain constructor in ``anneal="from-zero"``. The
    paper's text has five equal members: ``RobustPllEns(kl_ceiling=1.0)``.

    Examples
    --------
    >>> RobustPllEns().kl_ceiling
    (0.5, 1.0, 2.0, 4.0, 8.0)
    """

    name: ClassVar[str] = "robust_pll_ens"
    title: ClassVar[str] = "RobustPll+Ens"
    family: ClassVar[str] = "ensemble"

    members: int = 5
    kl_ceiling: Number = (0.5, 1.0, 2.0, 4.0, 8.0)
