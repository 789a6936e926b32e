"""Rules that the tests themselves keep, the versions they run with, and what users install."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from packaging.requirements import Requirement
from packaging.version import Version

from robustpll import __version__

ROOT = Path(__file__).parents[1]
CLIENT = "tests/typed_client.py"
# The first versions without known vulnerabilities that matter here.
SAFE = {"jinja2": "3.1.6", "onnx": "1.22", "pillow": "12.3", "pyarrow": "14.0.1", "ray": "2.54"}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]


def test_no_generated_example_has_a_deadline() -> None:
    assert settings().deadline is None
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"settings\([^)]*\bdeadline=[^N]", path.read_text()), path


def test_floors_exclude_versions_with_known_vulnerabilities() -> None:
    floors = {one.name.lower(): one.specifier for one in requirements() if one.name.lower() in SAFE}
    assert floors.keys() == SAFE.keys()
    for name, first_safe in SAFE.items():
        versions = [Version(one.version) for one in floors[name] if one.operator == ">="]
        assert versions, name
        assert versions >= [Version(first_safe)], name


def test_every_requirement_admits_the_version_that_is_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines)
    for one in requirements():
        assert one.specifier.contains(pins[one.name.lower()]), one


def test_all_files_name_the_present_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__} - " in (ROOT / "CHANGELOG.md").read_text()


with patch.object(sys, "path", [str(ROOT / "benchmarks"), *sys.path]):
    dependencies = import_module("dependencies")


def test_the_bill_of_materials_names_each_runtime_dependency_with_version_and_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bill = dependencies.sbom(project | {"optional-dependencies": {}}, __version__)
    components = {one["name"]: one for one in bill["components"]}
    direct = {dependencies.normal(Requirement(line).name) for line in project["dependencies"]}
    assert direct <= components.keys()
    assert {"markupsafe", "sympy", "joblib"} <= components.keys()  # of jinja2, torch, scikit-learn
    assert bill["dependencies"][0] == {"ref": "robustpll", "dependsOn": sorted(direct)}
    for name, one in components.items():
        [licence] = one["licenses"]
        text = licence.get("expression") or licence["license"]["name"]
        assert text not in ("", "not declared"), name
        assert one["purl"] == f"pkg:pypi/{name}@{one['version']}"
    refs = {entry["ref"] for entry in bill["dependencies"]}
    assert all(set(entry["dependsOn"]) <= refs for entry in bill["dependencies"])


def test_the_page_of_licences_has_the_versions_that_are_tested() -> None:
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| [a-z]\S* \| \d", line)]
    pins = (line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    versions = {dependencies.normal(name): version for name, version in pins}
    assert {name: version for name, version, _ in rows} == versions
    named = {dependencies.normal(one.name) for one in requirements()}
    assert named <= {name for name, *_ in rows}
    assert all(licence not in ("", "not declared") for *_, licence in rows)


@pytest.mark.slow
def test_a_users_program_is_typed_for_mypy() -> None:
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", CLIENT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_a_users_program_is_typed_for_pyright(tmp_path: Path) -> None:
    settings = {"include": ["client.py"], "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "client.py").write_text((ROOT / CLIENT).read_text())
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["pyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_files(tmp_path: Path) -> None:
    """`make dist` tries it in an environment of its own."""
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("robustpll-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "robustpll/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]
    kinds, source = {".j2", ".js", ".css", ".csv", ".toml"}, ROOT / "src"
    inside = [path for path in (source / "robustpll").rglob("*") if path.suffix in kinds]
    assert {path.suffix for path in inside} == kinds
    assert {str(path.relative_to(source)) for path in inside} <= names
