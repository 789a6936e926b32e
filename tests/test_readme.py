"""What README shows is run, and what it claims is where it says."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_code_in_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it saves a model
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert names["model"].score(names["X_test"], names["y_test"]) > 0.97  # type: ignore[attr-defined]
    assert (names["model"].labels_ == names["y_train"]).mean() > 0.98  # type: ignore[attr-defined]
    assert (tmp_path / "animals.pll").exists()


def test_the_results_are_those_of_the_stored_run() -> None:
    (stored,) = (ROOT / "benchmarks" / "results").glob("accuracy-images-paper-*.json")
    report = json.loads(stored.read_text())
    assert report["date"] in README
    assert report["machine"] in README
    for name in report["sets"]["mnist"]["methods"]:
        found = [report["sets"][each]["methods"][name] for each in ("mnist", "fmnist")]
        cells = [cell(part) for each in found for part in (each["test"]["0"], each["published"])]
        assert f"| {found[0]['title']} | {' | '.join(cells)} |" in README


def cell(spread: dict[str, float]) -> str:
    return f"{spread['mean']:.1f} ± {spread['std']:.1f}"


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
