"""The benchmark: methods on datasets with seeds, kept in a store, and the tables of it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustpll.bench.executor import run_grid
    from robustpll.bench.grid import Grid
    from robustpll.bench.store import ResultStore
    from robustpll.bench.summary import summarize

__all__ = ["Grid", "ResultStore", "run_grid", "summarize"]

_HOMES = {"Grid": "grid", "ResultStore": "store", "run_grid": "executor", "summarize": "summary"}


def __getattr__(name: str) -> Any:
    """Loads what is asked for: workers need none of what makes tables."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustpll.bench' has no attribute {name!r}")
    return getattr(import_module(f"robustpll.bench.{_HOMES[name]}"), name)
