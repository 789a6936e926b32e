"""What users install; `make dist` tries it in an environment of its own."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_files(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("robustpll-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "robustpll/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]
    package = ROOT / "src" / "robustpll"
    kinds = {".j2", ".js", ".css", ".csv", ".toml"}
    inside = {
        str(path.relative_to(ROOT / "src")) for path in package.rglob("*") if path.suffix in kinds
    }
    assert {Path(name).suffix for name in inside} == kinds
    assert inside <= set(names)
