"""RobustPll+Ens (Fuchs & Kalinke)."""

from dataclasses import dataclass
from typing import ClassVar, Self

from robustpll.methods.base import Number
from robustpll.methods.robust_pll import RobustPll


@dataclass(frozen=True)
class RobustPllEns(RobustPll):
    """Five RobustPll networks under different ceilings of the divergence, their opinions averaged.

    ``RobustPllEns.paper()`` differs from the plain constructor in ``anneal="from-zero"``. The
    paper's text has five equal members: ``RobustPllEns(kl_ceiling=1.0)``. Unlike in RobustPll the
    divergence is not counted by class, as the published ceilings are not; from 100 classes on they
    are multiplied by 0.0005.

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
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False

    @classmethod
    def paper(cls) -> Self:
        return cls(anneal="from-zero")
