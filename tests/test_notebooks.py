"""The tutorials: what is stored in them, and whether they run."""

import ast
import base64
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pytest

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
PUBLIC = Path(__file__).parent / "reference" / "public-api.txt"
# Besides what that file lists: modules that pages of the site import from.
DOCUMENTED = ("robustpll.methods", "robustpll.datasets.noise", "robustpll.plots")
CODE_LINES, OUTPUT_LINES, WIDTH, PICTURE_BYTES = 14, 25, 100, 100_000
MACHINE = re.compile(r"(?<![\w.])/(work|root|tmp|home|Users|var)/|ROBUSTPLL_DATA")

FACTS = {  # what the text says, of variables at the end
    "table": [
        "(model.labels_ == data.truth).mean() > (majority == data.truth).mean() + 0.05",
        "people['reliability'].idxmin() == 'eve'",
        "(people['reliability'] - people['truly right']).abs().max() < 0.1",
        "len(review) < 70",
        "right.mean() > 0.7 and right[decision.accepted].mean() >= right.mean()",
    ],
    "photos": [
        "(model.labels_ == table.truth).mean() > (majority == table.truth).mean() + 0.05",
        "len(review) < 150",
        "right.mean() > 0.6 and right[decision.accepted].mean() >= right.mean()",
        "Path('cleaned/review.html').stat().st_size > 50_000",
    ],
    "text": [
        "(model.labels_ == train['topic']).mean() > (majority == train['topic']).mean() + 0.05",
        "accuracy['resolved'] > accuracy['majority']",
        "pipeline.score(test['text'], test['topic']) > 0.8",
        "not decision.accepted[3] and decision.accepted[2]",
    ],
    "promise": [
        "model.score(X_test, y_test) > 0.9",
        "report.error < 0.05",
        "np.mean(np.array(errors) > 0.02) <= 0.1",
        "members[np.arange(len(y_test)), y_test].mean() > 0.97",
        "not model.decide(inverted, error=0.02).accepted.any()",
        "sets.predict(X_test[:1]).sum() >= 1",
    ],
    "compare": [
        "comparison.verdict == 'better'",
        "min(values.mean() for values in scores.values()) > 0.6",
        "search.score(X_test, y_test) > 0.7",
        "(outcome.done, again.done, again.known) == (9, 0, 9)",
        "len(summary.missing) == 0",
    ],
    "own-model": [
        "min(m.score(pictures[test], y[test]) for m in (model, own, proden, tuned)) > 0.85",
        "1 < len(stopped.history_['loss']) < 100",
        "(again.predict(pictures[test]) == own.predict(pictures[test])).all()",
    ],
}


def read(name: str) -> Any:
    return nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_tutorial_has_facts() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.ipynb")} == {*FACTS}


@pytest.mark.parametrize("name", FACTS)
def test_stored_outputs_are_whole_short_and_of_no_machine(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert not MACHINE.search((TUTORIALS / f"{name}.ipynb").read_text())
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert {*notebook.metadata} == {"kernelspec", "language_info"}
    assert not any(cell.metadata for cell in notebook.cells)
    pictures = 0
    for cell in cells:
        assert len(cell.source.splitlines()) <= CODE_LINES, cell.source
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"
            text = output.get("text") or output.data.get("text/plain", "")
            assert len(text.splitlines()) <= OUTPUT_LINES, text
            assert "\x1b" not in text
            picture = output.get("data", {}).get("image/png", "")
            assert len(base64.b64decode(picture)) <= PICTURE_BYTES
            pictures += bool(picture)
    assert pictures
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) / 2


@pytest.mark.parametrize("name", FACTS)
def test_tutorials_import_public_names_only(name: str) -> None:
    listed = re.findall(r"^([\w.]+)", PUBLIC.read_text(), flags=re.MULTILINE)
    code = "\n".join(cell.source for cell in code_cells(read(name)))
    code = re.sub(r"^!(\\\n|.)*", "", code, flags=re.MULTILINE)  # commands
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("robustpll"):
            for alias in node.names:
                public = f"{node.module}.{alias.name}" in listed or node.module in DOCUMENTED
                assert public, f"{node.module}.{alias.name}"


@pytest.mark.parametrize("name", FACTS)
def test_sentences_are_short_and_links_lead_to_files(name: str) -> None:
    for cell in read(name).cells:
        if cell.cell_type == "markdown":
            for sentence in re.split(r"(?<=[.!?:;])\s+|\n\n|\n- ", cell.source):
                assert len(sentence.split()) <= 25, sentence
            for link in re.findall(r"\]\(([^)#]+)", cell.source):
                assert "://" in link or (TUTORIALS / link).exists(), link


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTS)
def test_a_tutorial_runs_and_what_it_says_is_true(name: str, tmp_path: Path) -> None:
    """Warnings are errors in it; it runs without the downloaded datasets."""
    with patch.object(sys, "path", [str(TUTORIALS), *sys.path]):
        execute = import_module("execute")
    checks = "\n".join(f"assert {fact}, {fact!r}" for fact in FACTS[name])
    notebook, stored = execute.executed(read(name), tmp_path, checks), read(name)
    assert len(notebook.cells) == len(stored.cells)
    for cell, other in zip(code_cells(notebook), code_cells(stored), strict=True):
        kinds = [[output.output_type for output in c.outputs] for c in (cell, other)]
        assert kinds[0] == kinds[1], cell.source
