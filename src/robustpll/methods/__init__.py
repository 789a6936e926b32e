"""The methods by name, in the order of the report."""

from robustpll.methods.base import DeepMethod, Method
from robustpll.methods.cavl import Cavl
from robustpll.methods.cc import Cc
from robustpll.methods.classical import ClassicalMethod
from robustpll.methods.crosel import CroSel
from robustpll.methods.dst_pll import DstPll
from robustpll.methods.ipal import Ipal
from robustpll.methods.pl_ecoc import PlEcoc
from robustpll.methods.pl_knn import PlKnn
from robustpll.methods.pl_svm import PlSvm
from robustpll.methods.pop import Pop
from robustpll.methods.proden import Proden
from robustpll.methods.proden_adv_ens import ProdenAdvEns
from robustpll.methods.proden_dropout import ProdenDropout
from robustpll.methods.proden_edl import ProdenEdl
from robustpll.methods.proden_ens import ProdenEns
from robustpll.methods.proden_l2 import ProdenL2
from robustpll.methods.rc import Rc
from robustpll.methods.robust_pll import RobustPll
from robustpll.methods.robust_pll_at import RobustPllAt
from robustpll.methods.robust_pll_at_ens import RobustPllAtEns
from robustpll.methods.robust_pll_ens import RobustPllEns
from robustpll.methods.valen import Valen

# Those of the paper, which the grids "paper" and "sound" run.
PUBLISHED: tuple[type[Method], ...] = (
    PlKnn,
    PlSvm,
    Ipal,
    PlEcoc,
    Proden,
    ProdenL2,
    ProdenEdl,
    Rc,
    Cc,
    Valen,
    Cavl,
    Pop,
    CroSel,
    DstPll,
    RobustPll,
    ProdenDropout,
    ProdenEns,
    ProdenAdvEns,
    RobustPllEns,
)
FURTHER: tuple[type[Method], ...] = (RobustPllAt, RobustPllAtEns)
METHODS: dict[str, type[Method]] = {m.name: m for m in (*PUBLISHED, *FURTHER)}

__all__ = [
    "METHODS",
    "PUBLISHED",
    "Cavl",
    "Cc",
    "ClassicalMethod",
    "CroSel",
    "DeepMethod",
    "DstPll",
    "Ipal",
    "Method",
    "PlEcoc",
    "PlKnn",
    "PlSvm",
    "Pop",
    "Proden",
    "ProdenAdvEns",
    "ProdenDropout",
    "ProdenEdl",
    "ProdenEns",
    "ProdenL2",
    "Rc",
    "RobustPll",
    "RobustPllAt",
    "RobustPllAtEns",
    "RobustPllEns",
    "Valen",
]
