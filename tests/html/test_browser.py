"""Pages in a real browser: what is clicked, typed and pressed does what it should."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from robustpll.html.shell import Column, Details, LongTable, render_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

EVIL = "<script>hacked = 1</script><img src='x' onerror='hacked = 2'>"
TEMPLATE = """{% extends "base.html.j2" %}
{% from "parts.html.j2" import long_table %}
{% block title %}Page{% endblock %}
{% block main %}
<div class="wide"><table class="sortable" id="small">
<caption>Small</caption>
<thead><tr><th scope="col">method</th><th scope="col" class="number">score</th></tr></thead>
{% for group in groups %}<tbody>{% for name, score in group %}
<tr><th scope="row">{{ name }}</th>
<td class="number" data-value="{{ score if score is not none }}">{{ score or "–" }} %</td></tr>
{% endfor %}</tbody>{% endfor %}
</table></div>
{{ long_table(table, "All runs") }}
{{ markup | safe }}
{% endblock %}
"""
GROUPS = [[("b10", 20.0), ("b9", None), ("a", 100.0)], [("Ens", 3.0), ("Dro", 4.0)]]
METHODS = ("Proden", "Cc", EVIL)
CONDITIONS = ("clean", "pgd 0.1", "pgd 0.2")
Open = Callable[..., "Page"]


def long_table(seeds: int = 20) -> LongTable:
    columns = [
        Column("method", choose=True, in_details=False),
        Column("seed", 0, in_details=False),
        Column("condition", choose=True),
        Column("accuracy", 1),
        Column("brier", 3, in_table=False),
    ]
    rows: list[tuple[str | float | None, ...]] = []
    opens: list[int] = []
    details: list[Details] = []
    for method in METHODS:
        for seed in range(seeds):
            for number, condition in enumerate(CONDITIONS):
                accuracy = None if condition == "pgd 0.2" else 50 + seed / 7 - number
                rows.append((method, seed, condition, accuracy, 0.125))
                opens.append(len(details))
            about = {"Method": {"name": method, "epochs": 200}, "Run": {"key": f"{seed:020x}"}}
            details.append(Details(f"{method}, seed {seed}", about))
    return LongTable("runs", columns, rows, details, opens)


@pytest.fixture
def text(tmp_path: Path) -> str:
    return shell_page(tmp_path)


def shell_page(folder: Path, seeds: int = 20, markup: str = "") -> str:
    template = folder / "page.html.j2"
    template.write_text(TEMPLATE)
    return render_page(template, groups=GROUPS, table=long_table(seeds), markup=markup)


def first_cells(table: "Locator") -> list[str]:
    return table.locator("tbody tr > :first-child").all_inner_texts()


def test_a_heading_sorts_down_then_up_then_not_and_groups_stay_apart(show: Open, text: str) -> None:
    small = show(text).locator("#small")
    score = small.get_by_role("columnheader", name="score")
    assert first_cells(small) == ["b10", "b9", "a", "Ens", "Dro"]
    score.get_by_role("button").click()
    assert score.get_attribute("aria-sort") == "descending"
    assert first_cells(small) == ["a", "b10", "b9", "Dro", "Ens"]
    score.get_by_role("button").click()
    assert score.get_attribute("aria-sort") == "ascending"
    assert first_cells(small) == ["b10", "a", "b9", "Ens", "Dro"]  # what has no value stays last
    score.get_by_role("button").click()
    assert score.get_attribute("aria-sort") is None
    assert first_cells(small) == ["b10", "b9", "a", "Ens", "Dro"]


def test_the_keyboard_sorts_and_names_are_sorted_by_the_numbers_in_them(
    show: Open, text: str
) -> None:
    page = show(text)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert first_cells(page.locator("#small")) == ["a", "b9", "b10", "Dro", "Ens"]
    assert page.locator("#small th[aria-sort]").inner_text() == "method"


def test_words_and_lists_narrow_the_rows_and_the_count_says_so(show: Open, text: str) -> None:
    page = show(text)
    runs = page.get_by_role("table", name="All runs")
    count = page.locator("output")
    assert count.inner_text() == "180 rows"
    page.get_by_label("method").select_option("Cc")
    assert count.inner_text() == "60 of 180 rows"
    page.get_by_label("Find").fill("PGD 0.1")
    assert count.inner_text() == "20 of 180 rows"
    assert set(first_cells(runs)) == {"Cc"}
    assert set(runs.locator("tbody td:nth-child(3)").all_inner_texts()) == {"pgd 0.1"}
    page.get_by_label("Find").fill("nowhere")
    assert runs.locator("tbody tr").count() == 0
    page.get_by_label("Find").press("Escape")
    assert page.get_by_label("Find").input_value() == ""
    page.get_by_label("method").select_option("all")
    assert count.inner_text() == "180 rows"


def test_a_long_table_is_shown_in_pages_and_sorted_as_a_whole(show: Open, text: str) -> None:
    page = show(text)
    runs = page.get_by_role("table", name="All runs")
    pages = page.get_by_role("navigation")
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


def test_markup_in_a_label_is_shown_as_text_and_does_not_run(show: Open, text: str) -> None:
    page = show(text)
    page.get_by_label("method").select_option(EVIL)
    button = page.get_by_role("table", name="All runs").locator("tbody button").first
    assert button.inner_text() == EVIL
    button.click()
    assert page.get_by_role("dialog").locator("h2").inner_text() == f"{EVIL}, seed 0"
    assert page.get_by_role("dialog").locator("dd").first.inner_text() == EVIL
    assert page.evaluate("typeof hacked") == "undefined"


def test_markup_that_slipped_through_cannot_run_either(show: Open, tmp_path: Path) -> None:
    page = show(shell_page(tmp_path, markup=EVIL.replace("'x'", "'data:,'")), complaints=True)
    assert page.locator("img").count() == 1
    assert page.evaluate("typeof hacked") == "undefined"


def test_without_scripts_tables_are_read_as_they_are(show: Open, text: str) -> None:
    page = show(text, java_script_enabled=False)
    assert first_cells(page.locator("#small")) == ["b10", "b9", "a", "Ens", "Dro"]
    assert page.get_by_role("button").count() == 0
    assert page.get_by_text("scripts are off").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_ground(show: Open, text: str, scheme: str) -> None:
    """By the contrast that WCAG asks of small text, 4.5."""
    page = show(text, color_scheme=scheme)
    ground = luminance(colour(page.locator("body"), "background-color"))
    assert (ground > 0.5) == (scheme == "light")
    for place in ("#small td", "#small th", "caption", "output", "tbody button.open"):
        ink = luminance(colour(page.locator(place).first, "color"))
        low, high = sorted((ground, ink))
        assert (high + 0.05) / (low + 0.05) >= 4.5, place


def test_on_paper_there_is_no_tool_and_the_ground_is_white(show: Open, text: str) -> None:
    page = show(text, color_scheme="dark")
    page.emulate_media(media="print")
    assert colour(page.locator("body"), "background-color") == [255, 255, 255]
    assert not page.get_by_label("Find").is_visible()
    assert not page.get_by_role("button", name="Next").is_visible()
    assert page.get_by_role("table", name="All runs").is_visible()


def test_headings_stay_in_sight(show: Open, text: str) -> None:
    page = show(text)
    page.locator("table[data-rows] tbody tr").nth(60).scroll_into_view_if_needed()
    box = page.get_by_role("columnheader", name="accuracy").bounding_box()
    assert box
    assert 0 <= box["y"] < 10


def test_on_a_narrow_screen_tables_scroll_and_the_page_does_not(show: Open, text: str) -> None:
    page = show(text, viewport={"width": 340, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 340
    table = page.locator(".wide", has=page.get_by_role("table", name="All runs"))
    assert table.evaluate("node => node.scrollWidth > node.clientWidth")


def colour(place: "Locator", name: str) -> list[int]:
    value = place.evaluate("(node, name) => getComputedStyle(node).getPropertyValue(name)", name)
    return [int(number) for number in re.findall(r"\d+", value)[:3]]


def luminance(rgb: list[int]) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
