"""The guide is short, and so are its sentences."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORDS = 25  # of a sentence
README_WORDS = 900  # with code, without tables
DOCS_WORDS = 20_000  # of all pages and notebooks, without code and tables

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(DOCS.rglob("*.ipynb"))]


def text_of(page: Path) -> str:
    """Return a page, or the texts of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [
        cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
    ]
    return "\n\n".join("".join(source) for source in cells)


def without_tables(text: str) -> str:
    return re.sub(r"(?m)^ *\|.*\n?", "", re.sub(r"<!--.*?-->", "", text, flags=re.S))


def prose(text: str) -> str:
    """Return a page without code blocks, tables, pictures and displayed formulas.

    Code and formulas within a sentence count as a word, links by their text.
    """
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "\n", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", "\n", without_tables(text))
    text = re.sub(r"!\[.*?\]\(.*?\)", "", text, flags=re.S)
    text = re.sub(r"(?s)`[^`]+`|\\\(.*?\\\)", "X", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; headings, items of lists and paragraphs end one, too."""
    text = re.sub(r"(?m)^ *(#+|[-*]|\d+\.|\?\?\?|!!!) ", "\n\n", prose(text))
    parts = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text)]
    return [s for part in parts for s in re.split(r"(?<=[.!?])[*)\"]* (?=[^a-z])", part) if s]


def test_sentences_are_found() -> None:
    page = "# Title\n\nOne `a b` two. Three:\n- four [five](six.md)\n- seven\n\n| a. | B. |\n"
    page += "\n```python\nx = 1\n```\n\nEight \\(a + b\\) nine, e.g. ten.\n"
    found = sentences(page)
    expected = ["Title", "One X two.", "Three:", "four five", "seven", "Eight X nine, e.g. ten."]
    assert found == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_are_short(page: Path) -> None:
    long = [s for s in sentences(text_of(page)) if len(s.split()) > WORDS]
    assert long == []


def test_readme_is_short() -> None:
    assert len(without_tables(text_of(ROOT / "README.md")).split()) <= README_WORDS


def test_the_documentation_is_short() -> None:
    words = [word.strip(".,:;()") for page in PAGES[1:] for word in prose(text_of(page)).split()]
    assert sum(word != "X" and any(map(str.isalnum, word)) for word in words) <= DOCS_WORDS
