"""Packages that are not installed with the library: each is named where it is missed."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from robustpll import InputError, PLLClassifier
from robustpll.callbacks import TensorBoard
from robustpll.datasets.mat import _hdf5_matrices
from robustpll.engine.cluster import RayExecutor
from robustpll.methods import PlSvm, Wrapped
from robustpll.methods.wrapped import _imported
from robustpll.tables import encoders

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    extra: {Requirement(line).name for line in lines}
    for extra, lines in PROJECT["optional-dependencies"].items()
}
RUNTIME = {Requirement(line).name for line in PROJECT["dependencies"]}
# Packages whose names differ from those of their modules, and those that come with others.
PACKAGE_OF = {"PIL": "pillow", "sklearn": "scikit-learn", "crowdkit": "crowd-kit"}
PACKAGE_OF |= {"requests": "pooch", "markupsafe": "jinja2", "joblib": "scikit-learn"}
PACKAGE_OF |= {"threadpoolctl": "scikit-learn"}
PACKAGE_OF |= {"sentence_transformers": "sentence-transformers"}
ALONE = {"tokenizers", "timm", "sentence-transformers"}  # no extra has them
IN_NOTEBOOKS = {"IPython"}  # imported by code that runs in a kernel alone
X, Y = np.repeat(np.eye(2), 10, axis=0), np.repeat(["a", "b"], 10)


def test_every_import_is_a_dependency_or_of_an_extra() -> None:
    modules = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.split(".")[0])
    packages = {PACKAGE_OF.get(one, one) for one in modules - {*sys.stdlib_module_names}}
    users = set().union(*(EXTRAS[extra] for extra in EXTRAS if extra not in ("dev", "docs")))
    assert packages - {"robustpll"} - RUNTIME - users - ALONE - IN_NOTEBOOKS == set()


def test_every_hint_names_an_extra_that_exists_or_a_package() -> None:
    """In messages and in the documentation."""
    pages = [*SOURCES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    text = " ".join(path.read_text() for path in pages)
    extras = set(re.findall(r"robustpll\[([\w-]+)\]", text))
    assert extras <= set(EXTRAS)
    assert {"onnx", "ray", "mat73", "crowds", "tensorboard", "fast"} <= extras


def export(method: str | Wrapped) -> Callable[[], object]:
    return lambda: PLLClassifier(method).fit(X, Y).export_onnx("model.onnx")


def sentences() -> object:
    return encoders._sentences("some-name")


MISSED: dict[str, tuple[str, str, Callable[[], object]]] = {
    "onnx": ("onnx", "onnx", export("proden")),
    "onnxruntime": ("onnxruntime", "onnx", export("proden")),
    "onnxscript": ("onnxscript", "onnx", export("proden")),
    "skl2onnx": ("skl2onnx", "onnx", export(Wrapped("logistic_regression"))),
    "an encoder's onnxruntime": ("onnxruntime", "onnx", lambda: encoders._session(Path("a.onnx"))),
    "h5py": ("h5py", "mat73", lambda: [*_hdf5_matrices(b"", ("data",), 1)]),
    "crowd-kit": ("crowdkit", "crowds", lambda: _imported("crowdkit")),
    "cleanlab": ("cleanlab", "crowds", lambda: _imported("cleanlab")),
    "tensorboard": ("tensorboard", "tensorboard", lambda: TensorBoard("folder")),
    "ray": ("ray", "ray", lambda: RayExecutor("local")),
    "timm": ("timm", "", lambda: encoders._timm("resnet18", None)),
    "sentence-transformers": ("sentence_transformers", "", sentences),
}


@pytest.mark.parametrize("package", MISSED)
def test_a_missing_package_is_named_with_a_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, extra, use = MISSED[package]
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, module, None)  # importing it now raises ImportError
    with pytest.raises(InputError) as caught:
        use()
    command = f"pip install 'robustpll[{extra}]'" if extra else f"pip install {package}"
    assert command in str(caught.value)
    assert module in str(caught.value).replace("-", "_")
    if extra:
        assert PACKAGE_OF.get(module, module) in EXTRAS[extra]


def test_no_command_is_proposed_where_it_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is installed, or stands in for it, and there is no cluster at this address."""
    monkeypatch.setitem(sys.modules, "ray", ast)  # any module
    with pytest.raises(InputError, match="needs an address that is local") as caught:
        RayExecutor("nowhere:1")
    assert "pip install" not in str(caught.value)


def test_methods_work_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert (PLLClassifier(PlSvm()).fit(X, Y).predict(X) == Y).all()


def test_the_library_is_imported_without_any_extra() -> None:
    names = [module for module, *_ in MISSED.values()] + ["numba", "tokenizers", "IPython"]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({names}))
import robustpll
from robustpll.cli import app
[getattr(robustpll, name) for name in robustpll.__all__]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
