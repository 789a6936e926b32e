"""Import paths of version 0.1 that moved; they work for one release, with a warning."""

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {  # former module -> its present modules, below robustpll
    "candidates": ("labels.candidates",),
    "data": ("datasets",),
    "data.noise": ("datasets.noise",),
    "data.ood": ("datasets.problem",),
    "data.problem": ("datasets.problem",),
    "engine.task": ("engine.data",),
    "evaluate.calibration": ("measures.calibration", "evaluate.reports"),
    "evaluate.conformal": ("measures.conformal",),
    "evaluate.faulty": ("evaluate.reports",),
    "evaluate.label_free": ("evaluate.reports",),
    "evaluate.metrics": ("measures.metrics",),
    "evaluate.selection": ("measures.calibration", "evaluate.reports"),
    "evaluate.significance": ("measures.significance",),
    "methods.maths": ("methods.base",),
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a module under its former name; it holds the names of the present modules."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.removeprefix("robustpll.") not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=fullname == "robustpll.data")

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        homes = [f"robustpll.{home}" for home in MOVED[name.removeprefix("robustpll.")]]
        message = f"{name} has moved: import from {' or '.join(homes)} before version 0.3."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        for home in homes:
            names = vars(importlib.import_module(home))
            vars(module).update({k: v for k, v in names.items() if not k.startswith("__")})


sys.meta_path.append(MovedModules())
