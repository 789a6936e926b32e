"""Import paths of version 0.1 that moved; they work for one release, with a warning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "robustpll.candidates": "robustpll.labels.candidates",
    "robustpll.data": "robustpll.datasets",
    "robustpll.data.noise": "robustpll.datasets.noise",
    "robustpll.data.ood": "robustpll.datasets.ood",
    "robustpll.data.problem": "robustpll.datasets.problem",
    "robustpll.engine.task": "robustpll.engine.data",
    "robustpll.evaluate.calibration": "robustpll.measures.calibration",
    "robustpll.evaluate.conformal": "robustpll.measures.conformal",
    "robustpll.evaluate.faulty": "robustpll.evaluate.missing_truth",
    "robustpll.evaluate.metrics": "robustpll.measures.metrics",
    "robustpll.evaluate.selection": "robustpll.measures.selection",
    "robustpll.evaluate.significance": "robustpll.measures.significance",
    "robustpll.methods.maths": "robustpll.methods.losses",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a module under its former name and hands out the module itself, not a copy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=fullname == "robustpll.data")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} has moved: import from {MOVED[spec.name]}. "
            "The former name will be removed in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        module = ModuleType(spec.name)
        new = importlib.import_module(MOVED[spec.name])
        vars(module).update({k: v for k, v in vars(new).items() if not k.startswith("__")})
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: `create_module` filled the module."""


sys.meta_path.append(MovedModules())
