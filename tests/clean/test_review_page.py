"""The review page in a real browser: decided by keyboard, kept, downloaded, read back."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from robustpll.candidates import Candidates, Votes
from robustpll.clean.decided import read_decisions
from robustpll.clean.judge import Judgement
from robustpll.clean.page import Shown, review_page
from robustpll.clean.review import Review
from robustpll.cli import app
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=hacked=1>"
NAMES = np.array(["ant", 'bee, "large"', "cöw", EVIL])
KEY = "0123456789abcdef"
Open = Callable[..., "Page"]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def page_of(rows: int = 40, key: str = KEY, picture: bool = False) -> str:
    """Row 2 is the most doubtful, then 3, and so on; candidates of all are the first three."""
    doubt = np.linspace(0.6, 0.1, rows)
    p = np.stack([1 - doubt, 0.5 * doubt, 0.3 * doubt, 0.2 * doubt], 1)
    p[1::2, :2] = p[1::2, 1::-1]  # every other one is a bee
    matrix = np.tile([True, True, True, False], (rows, 1))
    y = Candidates(matrix, NAMES, (matrix / 3).astype(np.float32))
    opinion = Opinion.of_evidence(20 * p)
    judged = Judgement(y, opinion, torch.zeros(rows, 2), np.zeros(rows, dtype=bool))
    lines = np.arange(2, rows + 2)
    why = ("ambiguous",) * rows
    found = Review(np.arange(rows), doubt, why, ("an ant or a bee",) * rows)
    cells = [[f"pet {at}", EVIL] for at in range(rows)]
    pictures = [(PIXEL, "../pet.png")] * rows if picture else None
    shown = Shown(["name", EVIL], cells, pictures)
    counts = Votes([["ant", NAMES[1]]] * rows).counts(NAMES)
    return review_page("pets.csv", key, judged, found, rows=lines, shown=shown, votes=counts)


def press(page: "Page", keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def title(page: "Page") -> str:
    return page.locator("#card-title").inner_text()


def tally(page: "Page") -> str:
    return page.locator("#tally").inner_text()


def download(page: "Page", folder: Path, act: Callable[[], Any]) -> Path:
    with page.expect_download() as waiting:
        act()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_rows_are_decided_by_keyboard_downloaded_and_read_back(show: Open, tmp_path: Path) -> None:
    page = show(page_of())
    assert title(page) == "Row 2"
    press(page, "12s3")
    assert tally(page) == "3 of 40"
    assert title(page) == "Row 6"
    path = download(page, tmp_path, lambda: press(page, "d"))
    assert path.name == "decisions.csv"
    decided = read_decisions([path], np.arange(2, 42), NAMES, KEY)
    assert decided == {0: 0, 1: 0, 3: 2}  # of row 3 the second choice is the ant
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == ["2", "3", "5"]
    assert all(line["when"].endswith("Z") and line["table"] == KEY for line in lines)


def test_a_table_is_cleaned_reviewed_and_cleaned_again(show: Open, pets: Path) -> None:
    form = ["--votes", "by ", "--truth", "gold", "--ignore", "name", "--wrong", "0.001"]
    command = ["clean", str(pets), *form, "--method", "pl_knn", "--out"]
    folder = pets.parent
    assert CliRunner().invoke(app, [*command, str(folder / "out")]).exit_code == 0
    asked = pd.read_csv(folder / "out" / "rows_for_review.csv")
    page = show((folder / "out" / "review.html").read_text(encoding="utf-8"))
    assert title(page) == f"Row {asked['row'][0]}"
    assert page.locator(".cells dd").first.inner_text() == f"pet {asked['row'][0] - 2}"
    press(page, "11")
    path = download(page, folder, lambda: press(page, "d"))
    command += [str(folder / "again"), "--decisions", str(path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    table = pd.read_csv(folder / "again" / "table.csv")
    by_person = np.flatnonzero(table["resolved_by"] == "person") + 2
    assert sorted(by_person) == sorted(asked["row"][:2])
    here = Path(page.url.removeprefix("file://"))
    here.write_text((folder / "again" / "review.html").read_text(encoding="utf-8"))
    page.reload()
    assert tally(page).startswith("0 of ")  # what is decided is not asked again,
    press(page, "1")
    path = download(page, folder, lambda: press(page, "d"))
    assert len(path.read_text().splitlines()) == 1 + 3  # but stays among the decisions


def test_a_class_that_is_no_candidate_can_be_chosen_and_is_text(show: Open, tmp_path: Path) -> None:
    page = show(page_of())
    assert page.locator(".cells dd").nth(1).inner_text() == EVIL
    press(page, "o")
    assert page.evaluate("document.activeElement.id") == "other"
    page.locator("#other").select_option(EVIL)
    assert tally(page) == "1 of 40"
    path = download(page, tmp_path, page.get_by_role("button", name="Download").click)
    assert read_decisions([path], np.arange(2, 42), NAMES, KEY) == {0: 3}
    press(page, "k")
    assert page.locator(".item .name").first.inner_text() == EVIL
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img").count() == 0


def test_decisions_outlive_the_page_and_do_not_mix_with_those_of_other_tables(show: Open) -> None:
    page = show(page_of())
    press(page, "1s2")
    page.reload()
    assert tally(page) == "2 of 40"
    assert title(page) == "Row 5"  # the first that is open
    here = Path(page.url.removeprefix("file://"))
    here.write_text(page_of(key="another"), encoding="utf-8")
    page.reload()
    assert tally(page) == "0 of 40"
    here.write_text(page_of(), encoding="utf-8")
    page.reload()
    assert tally(page) == "2 of 40"


def test_undo_takes_back_one_after_the_other(show: Open) -> None:
    page = show(page_of())
    assert page.get_by_role("button", name="Undo").is_disabled()
    press(page, "12")
    press(page, "u")
    assert (title(page), tally(page)) == ("Row 3", "1 of 40")
    press(page, "u")
    assert (title(page), tally(page)) == ("Row 2", "0 of 40")
    assert page.get_by_role("button", name="Undo").is_disabled()
    assert page.get_by_role("button", name="Download").is_disabled()


def test_filters_narrow_the_rows_and_keys_type_in_fields(show: Open) -> None:
    page = show(page_of())
    press(page, "/")
    page.keyboard.type("pet 17")
    assert page.locator("#found").inner_text() == "2 of 40 rows"  # row 17, and pet 17 in row 19
    assert title(page) == "Row 17"
    assert tally(page) == "0 of 40"  # 1 and 7 were typed, not chosen
    page.keyboard.press("Enter")
    press(page, "1")
    assert tally(page) == "1 of 40"
    page.get_by_role("searchbox").fill("nowhere")
    assert title(page) == "No row fits the filter."
    page.get_by_role("searchbox").fill("")
    page.get_by_label("State").select_option("decided")
    assert page.locator("#found").inner_text() == "1 of 40 rows"
    page.get_by_label("State").select_option("open")
    assert page.locator("#found").inner_text() == "39 of 40 rows"
    page.get_by_label("State").select_option("all")
    page.locator("#label").select_option(NAMES[1])
    assert page.locator("#found").inner_text() == "20 of 40 rows"


def test_the_list_is_sorted_as_asked(show: Open) -> None:
    page = show(page_of())
    page.locator("#sort").select_option("label")
    assert page.locator(".item .name").first.inner_text() == "ant?"
    page.locator("#sort").select_option("row")
    page.locator("#list").focus()
    page.keyboard.press("End")
    assert title(page) == "Row 41"
    page.keyboard.press("ArrowUp")
    assert title(page) == "Row 40"
    press(page, "jj")
    assert title(page) == "Row 41"  # the last one stays


def test_help_opens_and_closes_by_key_and_swallows_other_keys(show: Open) -> None:
    page = show(page_of())
    press(page, "?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    press(page, "1")
    assert tally(page) == "0 of 40"
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog", name="Keys").is_visible()


def test_screen_readers_are_told_what_is_chosen_and_where(show: Open) -> None:
    page = show(page_of(picture=True))
    press(page, "1")
    assert page.get_by_role("status").last.inner_text() == "Row 2: ant. 1 of 40 decided."
    rows = page.get_by_role("listbox", name="Rows")
    current = rows.get_by_role("option", selected=True)
    assert current.get_attribute("aria-posinset") == "2"
    assert current.get_attribute("aria-setsize") == "40"
    owner = rows.get_attribute("aria-activedescendant")
    assert owner == current.get_attribute("id")
    assert page.get_by_role("img", name="picture of row 3").count() == 1
    assert page.get_by_role("img", name="belief").count() >= 3
    assert page.get_by_role("progressbar", name="Decided").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((node) =>"
        " !node.textContent.trim() && !node.labels?.length).length"
    )
    assert unnamed == 0


def test_ten_thousand_rows_do_not_lag(show: Open) -> None:
    page = show(page_of(rows=10_000))
    assert page.locator(".item").count() < 60
    timed = """([id, name, value, event]) => {
      const [node, start] = [document.getElementById(id), performance.now()];
      node[name] = value;
      node.dispatchEvent(new Event(event));
      document.body.offsetHeight;
      return performance.now() - start;
    }"""
    took = {
        "scroll": page.evaluate(timed, ["scroller", "scrollTop", 200_000, "scroll"]),
        "filter": page.evaluate(timed, ["find", "value", "pet 99", "input"]),
        "all": page.evaluate(timed, ["find", "value", "", "input"]),
        "sort": page.evaluate(timed, ["sort", "value", "label", "change"]),
    }
    start = page.evaluate("performance.now()")
    for _ in range(20):
        page.keyboard.press("1")
    took["decide"] = (page.evaluate("performance.now()") - start) / 20
    assert max(took.values()) < 250, took
    assert tally(page) == "20 of 10000"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_ground(show: Open, scheme: str) -> None:
    """By the contrast that WCAG asks of small text, 4.5."""
    page = show(page_of(), color_scheme=scheme)
    press(page, "1")
    contrast = """(node) => {
      const light = (text) => {
        const rgb = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
        const [r, g, b] = rgb.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      let ground = node;
      const under = () => getComputedStyle(ground).backgroundColor;
      while (under() === "rgba(0, 0, 0, 0)") ground = ground.parentNode;
      const pair = [getComputedStyle(node).color, under()].map(light);
      return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    }"""
    places = (".item .small", ".item .share", ".item.decided .mark", ".chip", ".options .name")
    for place in (*places, ".options .note", ".cells dt", "#tally", "#download", "kbd"):
        assert page.locator(place).first.evaluate(contrast) >= 4.5, place


def test_on_a_narrow_screen_nothing_is_cut_off(show: Open) -> None:
    page = show(page_of(), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    press(page, "1")
    assert tally(page) == "1 of 40"


def test_a_browser_that_keeps_nothing_says_so(show: Open) -> None:
    page = show("<title>nothing</title>")
    page.add_init_script("Storage.prototype.setItem = () => { throw new Error('full'); };")
    Path(page.url.removeprefix("file://")).write_text(page_of(), encoding="utf-8")
    page.reload()
    assert page.get_by_role("alert").inner_text().startswith("This browser does not keep decisions")
    press(page, "1")
    assert tally(page) == "1 of 40"


def test_without_scripts_the_page_says_why_it_is_empty(show: Open) -> None:
    page = show(page_of(), java_script_enabled=False)
    assert page.get_by_text("scripts are off").is_visible()
