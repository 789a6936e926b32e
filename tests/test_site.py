"""The pages of the site that are made from code and stored results."""

import inspect
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

import robustpll
from robustpll import METHODS, bench, callbacks, plots
from robustpll.methods import PUBLISHED

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
with patch.object(sys, "path", [str(ROOT / "docs"), *sys.path]):
    script = import_module("generate")  # finds the others
    pages, about = import_module("pages"), import_module("docstrings")
    notebooks = import_module("notebooks")


def test_the_advice_is_borne_out_by_the_report() -> None:
    """If other results are stored, which-method.md must be read again."""
    for dataset, name in pages.TABLE_OF.items():
        for ensembles in (False, True):
            best = pages.best(dataset, ensembles=ensembles)
            assert pages.values("paper", name, "bold")[dataset][best]
    values, titles = pages.values, [kind.title for kind in PUBLISHED]
    seconds = values("paper", "timing")["seconds per run"][titles]
    real_world = values("paper", "real-world")[[*pages.REAL_WORLD.values()]].mean(axis=1)[titles]
    pictures = values("paper", "table-1")[[*pages.PICTURES.values()]].mean(axis=1)[titles]
    assert seconds["RobustPll"] < 1.5 * seconds["Proden"]  # "at about the cost of Proden"
    for title in ("Proden", "Rc", "Cc", "CroSel"):
        assert real_world[title] > real_world["RobustPll"]
    assert real_world.idxmax() == seconds.idxmax() == "Proden+AdvEns"
    italian = values("paper", "extra")["Italian"][titles]
    assert italian["Proden"] > max(italian["Proden+AdvEns"], italian["RobustPll"] + 10)
    assert max(italian["Cc"], italian["CroSel"]) < 2  # percent: "next to nothing"
    classical = [kind.title for kind in PUBLISHED if kind.family == "classical"]
    assert (pictures + real_world)[classical].idxmax() == "Ipal"


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_tells_its_paper_fields_and_numbers(name: str) -> None:
    method, page = METHODS[name], script.method_page(METHODS[name])
    assert all(f"> {source}." in page for source in method.citation.split("; "))
    assert (inspect.getdoc(method) or "").split("\n")[0] in page
    differing = [
        field
        for field in method.field_names()
        if getattr(method(), field) != getattr(method.paper(), field)
    ]
    assert page.count("| **`") == len(differing)
    assert all(f"| `{field}` | " in page for field in method.field_names())
    if method not in PUBLISHED:
        has_views = bool(getattr(method, "views", ()))
        assert ("(../how-to/pictures.md#" if has_views else "(../which-method.md)") in page
        return
    texts = pages.report_tables("paper")["table-1"].texts(strong="**{}**")
    assert f"| MNIST | {texts.set_index('method').loc[method.title, 'MNIST']} |" in page


def test_the_api_page_names_all_that_is_public() -> None:
    page = script.api_page()
    for name in {*robustpll.__all__, *bench.__all__, *callbacks.__all__, *plots.__all__} - {
        "__version__"
    }:
        assert page.count(f"\n### {name}\n") == 1
    assert "fit(X, y=None, sample_weight=None, *, resume=None)" in page
    with patch.object(about, "API", {}), pytest.raises(SystemExit, match="differ in"):
        script.api_page()


def test_a_docstring_becomes_markdown() -> None:
    def documented() -> None:
        """A sum
        > 0, as in

        >>> 1 + 1
        2

        Parameters
        ----------
        first, second : {"a", "b"}
            What is added.
        third
            What is not.
        """

    prose, fence = ["A sum", "\\> 0, as in", ""], ["", "```pycon", ">>> 1 + 1", "2", "```"]
    first = ['- **first, second** (`{"a", "b"}`):', "    What is added."]
    third = ["- **third**:", "    What is not."]
    expected = [*prose, *fence, "", "**Parameters**", "", *first, *third]
    assert script.described(documented) == expected


def test_links_out_of_the_docs_lead_to_copies() -> None:
    text = "[a](../../reports/paper), [b](../../CONTRIBUTING.md#x), [c](../data.md), [d](https://a.b/../c)"
    found = [path for _, path in script.outside(text, "how-to/clean.md")]
    assert found == ["reports/paper", "CONTRIBUTING.md"]
    assert script.copied_to("reports/paper") == "files/reports/paper/index.html"
    assert script.copied_to("CONTRIBUTING.md") == "files/CONTRIBUTING.md.txt"
    assert list(script.outside("[a](../CONTRIBUTING.md)", "index.md"))


def written_notebook(folder: Path, *outputs: dict[str, Any], count: int | None = 1) -> Path:
    words = {"cell_type": "markdown", "source": ["# Title\n", "[next](other.ipynb#there)"]}
    code = {"cell_type": "code", "execution_count": count, "source": ["1 + 1"], "outputs": outputs}
    path = folder / "one.ipynb"
    path.write_text(json.dumps({"cells": [words, code]}))
    return path


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path: Path) -> None:
    html = '<style scoped>a</style><table border="1" class="dataframe"></table>'
    outputs = [
        {"output_type": "stream", "text": ["\x1b[31msaid\x1b[0m\n"]},
        {"output_type": "display_data", "data": {"image/png": b64encode(b"png").decode()}},
        {"output_type": "display_data", "data": {"image/svg+xml": ["<svg>", "</svg>"]}},
        {"output_type": "execute_result", "data": {"text/html": [html], "text/plain": ["a table"]}},
        {"output_type": "execute_result", "data": {"text/html": "<script>", "text/plain": "2"}},
        {"output_type": "display_data", "data": {"text/markdown": "*words*"}},
    ]
    page, pictures = notebooks.notebook_page(written_notebook(tmp_path, *outputs))
    assert page.startswith("# Title\n\n[Download this notebook](one.ipynb)")
    assert "[next](other.md#there)" in page
    assert pictures == {"one_files/1.png": b"png", "one_files/2.svg": b"<svg></svg>"}
    shown = ["````python\n1 + 1\n````", "\nsaid\n", "](one_files/1.png)", "](one_files/2.svg)"]
    shown += ["<table></table>", "\n2\n", "*words*"]
    assert [part for part in shown if part not in page] == []
    assert "a table" not in page
    assert "<script" not in page


def test_a_notebook_that_failed_or_did_not_run_is_no_page(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}
    with pytest.raises(SystemExit, match="failed with ValueError: no"):
        notebooks.notebook_page(written_notebook(tmp_path, error))
    with pytest.raises(SystemExit, match="not executed"):
        notebooks.notebook_page(written_notebook(tmp_path, count=None))


# The site in a browser, opened from disk


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture
def page(browser: "Browser", request: pytest.FixtureRequest) -> Iterator["Page"]:
    """A window that may load nothing but files; it has the width that a test asks for."""
    width = getattr(request, "param", 1280)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    yield page
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


@pytest.mark.browser
def test_search_finds_a_page_from_disk(site: Path, page: "Page") -> None:
    page.goto((site / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("checkpoint", delay=20)
    found = page.locator(".md-search-result__link", has_text="Control the training").first
    found.wait_for()
    found.click()
    page.wait_for_url("**/how-to/training.html**")


@pytest.mark.browser
def test_tabs_and_the_copy_button_of_the_installation(site: Path, page: "Page") -> None:
    page.goto((site / "index.html").as_uri())
    cpu, gpu = (page.locator(f".tabbed-labels label:has-text('{name}')") for name in ("CPU", "GPU"))
    shown = page.locator(".tabbed-block:visible")
    assert "download.pytorch.org/whl/cpu" in shown.inner_text()
    gpu.click()
    assert "download.pytorch.org/whl/cpu" not in shown.inner_text()
    cpu.click()
    shown.locator("pre").hover()
    shown.locator("button[data-clipboard-target], button.md-code__button").first.click()
    assert "whl/cpu" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.browser
def test_the_theme_toggles_and_is_kept(site: Path, page: "Page") -> None:
    page.goto((site / "index.html").as_uri())

    def scheme() -> str | None:
        return page.locator("body").get_attribute("data-md-color-scheme")

    assert scheme() == "default"
    page.locator("label[title='Switch to dark mode']:visible").click()
    assert scheme() == "slate"
    page.goto((site / "how-to" / "data.html").as_uri())
    assert scheme() == "slate"


@pytest.mark.browser
def test_a_notebook_shows_its_output_and_picture(site: Path, page: "Page") -> None:
    sources = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
    assert sources
    pictured = [path for path in sources if '"image/png"' in path.read_text(encoding="utf-8")]
    page.goto((site / "tutorials" / f"{pictured[0].stem}.html").as_uri())
    picture = page.locator("img[alt='Output of the code above']").first
    picture.scroll_into_view_if_needed()
    page.wait_for_function("picture => picture.naturalWidth > 100", arg=picture.element_handle())
    assert page.locator(".output").first.inner_text().strip()
    assert page.locator("a", has_text="Download this notebook").count() == 1


@pytest.mark.browser
def test_formulas_are_typeset(site: Path, page: "Page") -> None:
    typeset = [
        path for path in sorted(site.rglob("*.html")) if 'class="arithmatex"' in path.read_text()
    ]
    assert typeset
    for path in typeset:
        page.goto(path.as_uri())
        page.locator(".arithmatex svg").first.wait_for()
        size = (
            "parts => parts.map(part => part.querySelector('svg')?.getBoundingClientRect().width)"
        )
        assert all(width > 3 for width in page.locator(".arithmatex").evaluate_all(size)), path
        assert page.locator("[data-mjx-error]").count() == 0, path


@pytest.mark.browser
@pytest.mark.parametrize("page", [390], indirect=True)
def test_no_page_scrolls_sideways_on_a_phone(site: Path, page: "Page") -> None:
    wide = []
    for path in sorted(site.rglob("*.html")):
        if "files" not in path.parts:  # copies of reports, which have tests of their own
            page.goto(path.as_uri())
            if page.evaluate("document.documentElement.scrollWidth") > 390:
                wide.append(path.name)
    assert wide == []
