"""Pages: one file, no address but its own, no text that becomes markup; and in a real browser."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from robustpll.html import Column, LongTable, allowed, render_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

EVIL = "</title></script><script>hacked = 1</script><img src='x' onerror='hacked = 2'>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
TEMPLATE = """{% extends "base.html.j2" %}
{% from "parts.html.j2" import figure, long_table %}
{% block title %}{{ name }}{% endblock %}
{% block style %}.mine { color: red; }{% endblock %}
{% block main %}
<h1 title="{{ name }}">{{ name }}</h1>
<div class="wide"><table class="sortable" id="small">
<caption>Small</caption>
<thead><tr><th scope="col">method</th><th scope="col" class="number">score</th></tr></thead>
{% for group in groups %}<tbody>{% for name, score in group %}
<tr><th scope="row">{{ name }}</th>
<td class="number" data-value="{{ score if score is not none }}">{{ score or "–" }} %</td></tr>
{% endfor %}</tbody>{% endfor %}
</table></div>
{{ long_table(table, "All runs") }}
{{ figure(svg, name, name) }}
{{ markup | safe }}
{% endblock %}
"""
GROUPS = [[("b10", 20.0), ("b9", None), ("a", 100.0)], [("Ens", 3.0), ("Dro", 4.0)]]
PLAIN = ["b10", "b9", "a", "Ens", "Dro"]
Open = Callable[..., "Page"]


def long_table() -> LongTable:
    """180 rows: 3 methods, 20 seeds, 3 conditions; the last condition has no accuracy."""
    columns = [
        Column("method", choose=True, in_details=False),
        Column("seed", 0, in_details=False),
        Column("condition", choose=True),
        Column("accuracy", 1),
        Column("brier", 3, in_table=False),
    ]
    rows: list[tuple[str | float | None, ...]] = []
    details: list[tuple[str, dict[str, Any]]] = []
    for method in ("Proden", "Cc", EVIL):
        for seed in range(20):
            for number, condition in enumerate(("clean", "pgd 0.1", "pgd 0.2")):
                accuracy = float("nan") if number == 2 else 50 + seed / 7 - number
                rows.append((method, seed, condition, accuracy, 0.125))
            facts = {"Method": {"name": method, "epochs": 200}, "Run": {"key": f"{seed:020x}"}}
            details.append((f"{method}, seed {seed}", facts))
    return LongTable("runs", columns, rows, details, [row // 3 for row in range(len(rows))])


def page_of(folder: Path, **values: object) -> str:
    template = folder / "page.html.j2"
    template.write_text(TEMPLATE)
    plain = {"groups": GROUPS, "table": long_table(), "markup": "", "svg": SVG}
    return render_page(template, **plain | values)


@pytest.fixture
def text(tmp_path: Path) -> str:
    return page_of(tmp_path, name="Page")


class Reader(HTMLParser):
    """Elements with their attributes, and the text in each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.texts.append((self.elements[-1][0], data))


def test_markup_in_a_label_is_text_everywhere_and_the_page_names_no_address(
    tmp_path: Path,
) -> None:
    text = page_of(tmp_path, name=EVIL)
    page = Reader(text)
    scripts = [attributes.get("type") for tag, attributes in page.elements if tag == "script"]
    assert scripts == ["application/json", None]  # the data, and the script of every page
    assert [attributes for tag, attributes in page.elements if tag == "h1"] == [{"title": EVIL}]
    (data,) = (json.loads(text) for tag, text in page.texts if tag == "script" and text[0] == "{")
    assert data["rows"][-2:] == [
        [EVIL, 19, "pgd 0.1", 50 + 19 / 7 - 1, 0.125],
        [EVIL, 19, "pgd 0.2", None, 0.125],
    ]
    assert len(data["facts"]) == 3 + 20, "equal facts are written once"
    title, parts = data["details"][21]
    facts = {heading: data["facts"][index] for heading, index in parts}
    assert (title, facts) == long_table().details[21]
    attributes = [pair for _, attributes in page.elements for pair in attributes.items()]
    addresses = [str(value) for name, value in attributes if name in ("src", "href")]
    assert len(addresses) == 2
    assert all(address.startswith("data:") for address in addresses)
    assert "http" not in text.replace("http-equiv", "")
    assert not [name for name, _ in attributes if name == "style" or name.startswith("on")]
    assert page_of(tmp_path, name=EVIL) == text  # the same values give the same bytes
    with pytest.raises(UndefinedError, match="name"):
        page_of(tmp_path)


def test_the_policy_allows_the_inlined_script_and_style_and_nothing_else(text: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert ".mine" in style
    assert allowed("a") == "sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": f"'{allowed(script)}'",
        "style-src": f"'{allowed(style)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@settings(max_examples=30)
@given(
    st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists)
)
@example(["<!--<script>", "</script", "<![CDATA[", "\u2028&lt;"])
def test_data_comes_out_of_its_block_as_it_went_in(value: object) -> None:
    table = LongTable("data", [Column("one")], [[]], [("facts", {"fact": value})], [0])
    with TemporaryDirectory() as folder:
        page = Reader(page_of(Path(folder), name="Page", table=table))
    tags = [(tag, attributes.get("id")) for tag, attributes in page.elements]
    assert tags[tags.index(("script", "data")) + 1][0] == "figure"  # the block ends where it should
    (text,) = (text for tag, text in page.texts if tag == "script" and text.startswith("{"))
    assert "<" not in text
    assert json.loads(text)["facts"] == [value]


def first_cells(table: "Locator") -> list[str]:
    return table.locator("tbody tr > :first-child").all_inner_texts()


@pytest.mark.browser
def test_headings_sort_by_click_and_key_and_groups_stay_apart(show: Open, text: str) -> None:
    page = show(text)
    small = page.locator("#small")
    score = small.get_by_role("columnheader", name="score")
    assert first_cells(small) == PLAIN
    orders = {
        "descending": ["a", "b10", "b9", "Dro", "Ens"],
        "ascending": ["b10", "a", "b9", "Ens", "Dro"],  # what has no value stays last
        None: PLAIN,
    }
    for order, names in orders.items():
        score.get_by_role("button").click()
        assert score.get_attribute("aria-sort") == order
        assert first_cells(small) == names
    page.reload()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert first_cells(small) == ["a", "b9", "b10", "Dro", "Ens"]  # by the numbers in names
    assert small.locator("th[aria-sort]").inner_text() == "method"


@pytest.mark.browser
def test_words_and_lists_narrow_the_rows_and_the_count_says_so(show: Open, text: str) -> None:
    page = show(text)
    runs, count = page.get_by_role("table", name="All runs"), page.locator("output")
    find, method = page.get_by_label("Find"), page.get_by_label("method")
    assert count.inner_text() == "180 rows"
    method.select_option("Cc")
    assert count.inner_text() == "60 of 180 rows"
    find.fill("PGD 0.1")
    assert count.inner_text() == "20 of 180 rows"
    assert set(first_cells(runs)) == {"Cc"}
    assert set(runs.locator("tbody td:nth-child(3)").all_inner_texts()) == {"pgd 0.1"}
    find.fill("nowhere")
    assert runs.locator("tbody tr").count() == 0
    find.press("Escape")
    assert find.input_value() == ""
    method.select_option("all")
    assert count.inner_text() == "180 rows"


@pytest.mark.browser
def test_a_long_table_is_shown_in_pages_and_sorted_as_a_whole(show: Open, text: str) -> None:
    page = show(text)
    runs, pages = page.get_by_role("table", name="All runs"), page.get_by_role("navigation")
    assert runs.locator("tbody tr").count() == 100
    assert pages.locator("span").inner_text() == "1 to 100 of 180"
    assert pages.get_by_role("button", name="Previous").is_disabled()
    pages.get_by_role("button", name="Next").click()
    assert runs.locator("tbody tr").count() == 80
    assert pages.get_by_role("button", name="Next").is_disabled()
    runs.get_by_role("button", name="accuracy").click()
    values = runs.locator("tbody td:nth-child(4)").all_inner_texts()
    assert values[:3] == ["52.7", "52.7", "52.7"]  # from all pages, on the first again
    assert values == sorted(values, key=float, reverse=True)
    page.get_by_label("method").select_option("Cc")
    assert not pages.is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("how", ["click", "Enter"])
def test_a_row_opens_its_details_and_escape_gives_the_focus_back(
    show: Open, text: str, how: str
) -> None:
    page = show(text)
    row = page.get_by_role("table", name="All runs").locator("tbody tr").nth(4)
    if how == "click":
        row.locator("td").nth(3).click()
    else:
        row.get_by_role("button").press("Enter")
    dialog = page.get_by_role("dialog", name="Proden, seed 1")
    assert dialog.locator("thead").inner_text().split() == ["condition", "accuracy", "brier"]
    assert [line.split("\t") for line in dialog.locator("tbody").inner_text().splitlines()] == [
        ["clean", "50.1", "0.125"],
        ["pgd 0.1", "49.1", "0.125"],
        ["pgd 0.2", "–", "0.125"],
    ]
    facts = dict(zip(*(dialog.locator(tag).all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert facts == {"name": "Proden", "epochs": "200", "key": f"{1:020x}"}
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    if how == "Enter":
        assert row.get_by_role("button").evaluate("node => node === document.activeElement")


@pytest.mark.browser
def test_markup_is_shown_as_text_and_what_slipped_through_cannot_run(
    show: Open, text: str, tmp_path: Path
) -> None:
    page = show(text)
    page.get_by_label("method").select_option(EVIL)
    button = page.get_by_role("table", name="All runs").locator("tbody button").first
    assert button.inner_text() == EVIL
    button.click()
    dialog = page.get_by_role("dialog")
    assert dialog.locator("h2").inner_text() == f"{EVIL}, seed 0"
    assert dialog.locator("dd").first.inner_text() == EVIL
    assert page.evaluate("typeof hacked") == "undefined"
    markup = EVIL.replace("'x'", "'data:,'")
    page = show(page_of(tmp_path, name="Page", markup=markup), complaints=True)
    assert page.locator("main > img").count() == 1
    assert page.evaluate("typeof hacked") == "undefined"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_ground_and_paper_is_white(
    show: Open, text: str, contrast: Any, scheme: str
) -> None:
    """By the contrast that WCAG asks of small text, 4.5."""
    page = show(text, color_scheme=scheme)
    for place in ("#small td", "#small th", "caption", "output", "tbody button.open"):
        assert contrast(page.locator(place).first) >= 4.5, place
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(f"parseInt({ground}.slice(4)) > 127") == (scheme == "light")
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert not page.get_by_label("Find").is_visible()
    assert not page.get_by_role("button", name="Next").is_visible()
    assert page.get_by_role("table", name="All runs").is_visible()


@pytest.mark.browser
def test_headings_stay_in_sight_and_on_a_narrow_screen_only_tables_scroll(
    show: Open, text: str
) -> None:
    page = show(text)
    page.locator("table[data-rows] tbody tr").nth(60).scroll_into_view_if_needed()
    box = page.get_by_role("columnheader", name="accuracy").bounding_box()
    assert box
    assert 0 <= box["y"] < 10
    page.set_viewport_size({"width": 340, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 340
    table = page.locator(".wide", has=page.get_by_role("table", name="All runs"))
    assert table.evaluate("node => node.scrollWidth > node.clientWidth")


@pytest.mark.browser
def test_without_scripts_tables_are_read_as_they_are(show: Open, text: str) -> None:
    page = show(text, java_script_enabled=False)
    assert first_cells(page.locator("#small")) == PLAIN
    assert page.get_by_role("button").count() == 0
    assert page.get_by_text("scripts are off").is_visible()
