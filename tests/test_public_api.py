"""What users may rely on is written down: names, and the parameters that they take."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import robustpll
from robustpll import bench, callbacks, evaluate, measures, model_selection, plots

WITH_METHODS = ("Candidates", "Opinion", "PLLClassifier", "RobustPLLClassifier")
STORED = Path(__file__).parent / "reference" / "public-api.txt"


def described(home: str, name: str, thing: Any) -> str:
    """`robustpll.load(path, network)`; a thing that cannot be called is its name alone."""
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
        return f"{home}.{name}"
    return f"{home}.{name}({', '.join(inspect.signature(thing).parameters)})"


def methods_of(home: str, kind: type) -> Iterator[str]:
    """What a class of the library offers besides its constructor."""
    for name, member in inspect.getmembers(kind):
        module = getattr(inspect.unwrap(member), "__module__", "") or ""
        routine = not name.startswith("_") and inspect.isroutine(member)
        if routine and module.startswith("robustpll"):
            yield described(f"{home}.{kind.__name__}", name, member)


def listed(module: ModuleType, names: list[str]) -> Iterator[str]:
    for name in names:
        thing = getattr(module, name)
        yield described(module.__name__, name, thing)
        if name in WITH_METHODS:
            yield from methods_of(module.__name__, thing)


def own_names(module: ModuleType) -> list[str]:
    """Public functions and classes that a module itself defines."""
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]


def test_the_public_api_is_as_stored() -> None:
    """A difference is deliberate or a mistake: see "What users rely on" in CONTRIBUTING.md."""
    names = {*listed(robustpll, robustpll.__all__), *listed(bench, bench.__all__)}
    for module in (callbacks, model_selection, plots):
        names |= {*listed(module, module.__all__)}
    for package in (evaluate, measures):
        for part in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{part.name}")
            names |= {*listed(module, own_names(module))}
    stored = set(STORED.read_text().splitlines())
    assert sorted(stored - names) == [], "gone or changed"
    assert sorted(names - stored) == [], "new; add it to tests/reference/public-api.txt"


def test_every_name_is_found_and_told_of() -> None:
    assert set(dir(robustpll)) == set(robustpll.__all__)
    for name in robustpll.__all__:
        thing = getattr(robustpll, name)
        assert name in ("METHODS", "__version__") or inspect.getdoc(thing), name
