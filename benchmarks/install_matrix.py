"""Install the wheel and the sdist in empty environments, and try them there.

    python benchmarks/install_matrix.py [--python PATH ...] [--out FILE]

Builds both, makes one environment after the other in a scratch folder, and removes it afterwards.
Each is tried by this file itself: it trains, saves, loads and predicts in Python and on the command
line, and counts warnings. One interpreter for each version of Python is taken from `--python`, or
looked for. Versions that are not found are listed as such.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TORCH = "torch==2.13.0"
PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy", "pyarrow", "torch")
OLDEST = ["numpy==1.26.*", "pandas==2.2.*", "scikit-learn==1.6.*", "scipy==1.12.*"]
OLDEST += [
    "matplotlib==3.8.*",
    "pyarrow==16.*",
    "rich==13.7.*",
    "safetensors==0.4.*",
    "typer==0.16.*",
]
# Version of Python, which file is installed, and further requirements.
ENVIRONMENTS = {
    "oldest": ("3.11", "whl", OLDEST),
    # pyarrow 26 refuses NumPy 1.26, but pip does not know
    "numpy 1.26": ("3.11", "tar.gz", ["numpy<2", "pandas<3", "pyarrow<26"]),
    "newest": ("3.11", "whl", ["numpy>=2", "pandas>=3", "scikit-learn"]),
    "newest on 3.12": ("3.12", "whl", ["numpy>=2", "pandas>=3", "scikit-learn"]),
    "newest on 3.13": ("3.13", "tar.gz", ["numpy>=2", "pandas>=3", "scikit-learn"]),
}


def smoke() -> dict[str, Any]:
    """Try what most users do, in this environment; return warnings and what failed."""
    failures: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        import numpy as np
        import pandas as pd

        from robustpll import Candidates, PLLClassifier, RobustPLLClassifier, load, read_table

        random = np.random.default_rng(0)
        label = random.integers(3, size=300)
        X = pd.DataFrame(random.normal(label[:, None], 0.4, (300, 4)), columns=[*"abcd"])
        X["kind"] = np.where(label == 1, "x", "y")
        names = np.array(["cat", "dog", "emu"])
        other = names[random.integers(3, size=300)]
        y = [*map(set, zip(names[label], other, strict=True))]
        table = X.assign(seen=["|".join(sorted(one)) for one in y])
        table.to_csv("pets.csv", index=False)
        read = read_table("pets.csv", candidates="seen")
        for model in (RobustPLLClassifier(random_state=0), PLLClassifier("pl_knn")):
            model.fit(X[:200], Candidates.of(y)[:200]).save("model.pll")
            predicted = load("model.pll").predict(X[200:])
            right = (predicted == names[label[200:]]).mean()
            if right < 0.9 or (predicted != model.predict(X[200:])).any():
                failures.append(
                    f"{type(model).__name__}: {right:.2f} right, or changed by the file"
                )
        if len(read) != 300 or not isinstance(repr(read.y) + str(read.X._repr_html_()), str):
            failures.append("read_table")
    commands = (
        "--version", "methods", "table pets.csv --candidates seen",
        "fit pets.csv --candidates seen --out pets.pll --no-baselines --seed 0",
        "predict pets.pll pets.csv --out predicted.csv",
    )  # fmt: skip
    told = [f"{one.category.__name__}: {str(one.message)[:300]}" for one in caught]
    script = Path(sys.executable).with_name("robustpll")
    environment = os.environ | {"PYTHONWARNINGS": "default"}
    for command in commands:
        line = [sys.executable, script, *command.split()]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
        told += [one[:300] for one in done.stderr.splitlines() if "Warning" in one]
        if done.returncode:
            failures.append(f"robustpll {command}: {done.stderr[-500:]}")
    return {"failures": failures, "warnings": sorted(set(told))}


def interpreter(version: str, given: list[str]) -> str | None:
    """Return the path of a Python of this version, None if there is none."""
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in (*given, *map(str, homes), shutil.which(f"python{version}")):
        if path is None:
            continue
        shown = subprocess.run([path, "-V"], capture_output=True, text=True, check=False).stdout
        if shown.startswith(f"Python {version}."):
            return path
    return None


def tried(python: str, package: Path, further: list[str], folder: Path) -> dict[str, Any]:
    """Make an environment, install a file in it and try it there."""
    subprocess.run([python, "-m", "venv", folder / "env"], check=True)
    inside = folder / "env/bin/python"
    quiet = ["-q", "--disable-pip-version-check", "--no-cache-dir", "--no-compile"]
    install = [inside, "-m", "pip", "install", *quiet, str(package), TORCH, *further]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"failures": [done.stderr[-500:]], "warnings": []}
    code = "from importlib.metadata import version as v; import json, sys; "
    code += f"print(json.dumps({{n: v(n) for n in {PACKAGES}}} | {{'python': sys.version[:7]}}))"
    ask: Any = {"cwd": folder, "env": environment, "text": True, "stdout": subprocess.PIPE}
    versions = json.loads(subprocess.run([inside, "-c", code], check=True, **ask).stdout)
    shutil.copy(__file__, folder / "smoke.py")
    done = subprocess.run([inside, "smoke.py", "--smoke"], check=False, **ask)
    result = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    return versions | (result or {"failures": ["smoke.py ended with an error"], "warnings": []})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", nargs="*", default=[], help="further interpreters")
    parser.add_argument("--only", nargs="*", default=[*ENVIRONMENTS], help="names of environments")
    parser.add_argument("--out", type=Path, default=Path("install-matrix.json"))
    parser.add_argument("--smoke", action="store_true", help="try this environment, and no other")
    options = parser.parse_args()
    if options.smoke:
        print(json.dumps(smoke()))
        return
    report: dict[str, Any] = {"sets": {}}
    if options.out.exists():
        report = json.loads(options.out.read_text())
    report["command"] = "python benchmarks/install_matrix.py"
    report["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    report["date"] = datetime.now(UTC).date().isoformat()
    with tempfile.TemporaryDirectory() as dist:
        build = [sys.executable, "-m", "build", "--outdir", dist, str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        for name in options.only:
            version, ending, further = ENVIRONMENTS[name]
            (package,) = Path(dist).glob(f"*.{ending}")
            result: dict[str, Any] = {"failures": [f"no Python {version} was found"]}
            if python := interpreter(version, options.python):
                with tempfile.TemporaryDirectory() as folder:
                    result = tried(python, package, further, Path(folder))
            report["sets"][name] = {"installed": ending, **result}
            print(name, json.dumps(result, indent=1), flush=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
