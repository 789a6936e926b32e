"""What users install: the wheel alone, in an environment of its own."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from robustpll import __version__

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_without_the_source_tree(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("robustpll-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "robustpll/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]
    package = ROOT / "src" / "robustpll"
    kinds = {".j2", ".js", ".css", ".csv"}
    inside = {
        str(path.relative_to(ROOT / "src")) for path in package.rglob("*") if path.suffix in kinds
    }
    assert {Path(name).suffix for name in inside} == kinds
    assert inside <= set(names)

    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    command = tmp_path / "empty" / "bin" / "robustpll"
    assert run(command, "--version", cwd=tmp_path) == f"robustpll {__version__}\n"
    assert "robust_pll_ens" in run(command, "methods", cwd=tmp_path)
    code = "import robustpll; print(robustpll.__file__)"
    assert "site-packages" in run(python, "-c", code, cwd=tmp_path)
