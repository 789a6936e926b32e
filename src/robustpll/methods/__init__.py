"""The methods by name. Each import below adds a method; their order is that of the report."""

# isort: off
from robustpll.methods.base import DeepMethod as DeepMethod, Method as Method
from robustpll.methods.classical import ClassicalMethod as ClassicalMethod
from robustpll.methods.pl_knn import PlKnn as PlKnn
from robustpll.methods.pl_svm import PlSvm as PlSvm
from robustpll.methods.ipal import Ipal as Ipal
from robustpll.methods.pl_ecoc import PlEcoc as PlEcoc
from robustpll.methods.wrapped import Wrapped as Wrapped
from robustpll.methods.proden import Proden as Proden, ProdenL2 as ProdenL2
from robustpll.methods.evidential import ProdenEdl as ProdenEdl
from robustpll.methods.rc import Rc as Rc, Cc as Cc
from robustpll.methods.valen import Valen as Valen
from robustpll.methods.cavl import Cavl as Cavl
from robustpll.methods.proden import Pop as Pop
from robustpll.methods.crosel import CroSel as CroSel
from robustpll.methods.dst_pll import DstPll as DstPll
from robustpll.methods.evidential import RobustPll as RobustPll
from robustpll.methods.proden import ProdenDropout as ProdenDropout
from robustpll.methods.proden import ProdenEns as ProdenEns, ProdenAdvEns as ProdenAdvEns
from robustpll.methods.evidential import RobustPllEns as RobustPllEns, RobustPllAt as RobustPllAt
from robustpll.methods.evidential import RobustPllAtEns as RobustPllAtEns
from robustpll.methods.crdpll import Crdpll as Crdpll, RobustPllViews as RobustPllViews
from robustpll.methods.pico import Pico as Pico, Alim as Alim
from robustpll.methods.papi import Papi as Papi
from robustpll.methods.dirk import Dirk as Dirk
from robustpll.methods.pruning import Pruned as Pruned
from robustpll.methods.auto import Auto as Auto
# isort: on

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Method) and hasattr(kind, "name")
}
# The methods of the paper, which the grids "paper" and "sound" run.
PUBLISHED = tuple(kind for kind in METHODS.values() if kind.published)
