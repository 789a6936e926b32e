"""What the documentation shows is run."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert found
    return found


@pytest.mark.slow
def test_the_code_on_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "weight,legs,label",
        *(f"{i % 7 + i % 2 * 50},4,{'cat|dog' if i % 3 else 'dog'}" for i in range(40)),
    ]
    Path("animals.csv").write_text("\n".join(lines))
    names: dict[str, object] = {}
    for block in blocks("data.md"):
        exec(block, names)
    assert len(names["y"]) == 1437  # type: ignore[arg-type]
    assert names["model"].predict(names["table"].features).shape == (40,)  # type: ignore[attr-defined]


def test_links_lead_to_files() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (DOCS / link).exists(), f"{page.name}: {link}"
