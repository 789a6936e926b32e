"""The pages of the site that are made from code and stored results."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest

import robustpll
from robustpll import METHODS, bench, callbacks, plots
from robustpll.methods import PUBLISHED

with patch.object(sys, "path", [str(Path(__file__).parents[1] / "docs"), *sys.path]):
    script = import_module("generate")  # finds the others
    pages, about = import_module("pages"), import_module("docstrings")


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
        assert ("(../pictures.md#" if getattr(method, "views", ()) else "(../beyond.md)") in page
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
    text = "[a](../reports/paper), [b](../CONTRIBUTING.md), [c](data.md), [d](https://a.b/../c)"
    assert list(script.outside(text)) == ["reports/paper", "CONTRIBUTING.md"]
    assert script.copied_to("reports/paper") == "files/reports/paper/index.html"
    assert script.copied_to("CONTRIBUTING.md") == "files/CONTRIBUTING.md.txt"
