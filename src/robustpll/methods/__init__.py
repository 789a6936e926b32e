"""The methods by name, in the order of the report."""

from robustpll.methods.base import DeepMethod, Method
from robustpll.methods.proden import Proden
from robustpll.methods.robust_pll import RobustPll
from robustpll.methods.robust_pll_ens import RobustPllEns

METHODS: dict[str, type[Method]] = {m.name: m for m in (Proden, RobustPll, RobustPllEns)}

__all__ = ["METHODS", "DeepMethod", "Method", "Proden", "RobustPll", "RobustPllEns"]
