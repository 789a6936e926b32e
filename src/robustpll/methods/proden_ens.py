"""Proden+Ens: an ensemble of Proden networks."""

from dataclasses import dataclass
from typing import ClassVar

from robustpll.methods.proden import Proden


@dataclass(frozen=True)
class ProdenEns(Proden):
    """Five Proden networks with initial weights and orders of their own, probabilities averaged.

    ``ProdenEns.paper()`` is the plain constructor.

    Examples
    --------
    >>> ProdenEns().members
    5
    """

    name: ClassVar[str] = "proden_ens"
    title: ClassVar[str] = "Proden+Ens"
    family: ClassVar[str] = "ensemble"

    members: int = 5
