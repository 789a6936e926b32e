"""What README shows is run, and what it claims is where it says."""

import re
from pathlib import Path

import pytest

from robustpll.bench.summary import read_summary
from robustpll.bench.tables import all_tables

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


def test_the_results_are_those_of_the_report() -> None:
    summary = read_summary(ROOT / "reports" / "paper" / "runs.parquet")
    assert summary.facts["date"][0] in README
    assert any(machine in README for machine in summary.facts["machine"])
    cells = all_tables(summary)["compare-1"].cells.to_dict("records")
    rows = {line.split(" | ")[0].strip("| "): line for line in README.splitlines() if "±" in line}
    assert len({cell["label"] for cell in cells}) == 19
    for cell in cells:
        assert f"{cell['value']:.1f} ± {cell['std']:.1f}" in rows[cell["label"]]
        if not cell["why_not"]:
            assert f"({cell['published']})" in rows[cell["label"]]
    agreeing = sum(cell["agrees"] == 1 for cell in cells)
    assert f"{agreeing} of the 76 picture cells agree" in README


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
