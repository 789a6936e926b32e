"""The review page in a real browser: decided by keyboard, kept, downloaded, read back."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

from robustpll.clean.decisions_file import read_decisions
from robustpll.clean.judge import judgement
from robustpll.clean.page import Picture, review_page
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from playwright.sync_api import Locator, LocatorAssertions, Page

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=hacked=1>"
NAMES = np.array(["ant", 'bee, "large"', "cöw", EVIL])
KEY = "0123456789abcdef"
Open = Callable[..., "Page"]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def page_of(
    rows: int = 40, key: str = KEY, picture: Picture | None = None, names: np.ndarray = NAMES
) -> str:
    """Row 2 is the most doubtful, then 3, and so on; candidates of all are the first three."""
    doubt = np.linspace(0.6, 0.1, rows)
    p = np.stack([1 - doubt, 0.5 * doubt, 0.3 * doubt, 0.2 * doubt], 1)
    p[1::2, :2] = p[1::2, 1::-1]  # every other one is a bee
    matrix = np.tile([True, True, True, False], (rows, 1))
    y = Candidates(matrix, names, (matrix / 3).astype(np.float32))
    judged = judgement(y, Opinion.of_evidence(20 * p), torch.arange(rows * 1.0)[:, None])
    review = {"row": np.arange(2, rows + 2), "why": "ambiguous", "reason": "an ant or a bee"}
    return review_page(
        "pets.csv",
        key,
        judged,
        pd.DataFrame(review),
        columns=["name", EVIL],
        cells=[[f"pet {row}", EVIL] for row in range(rows)],
        pictures=None if picture is None else [picture] * rows,
        votes=np.tile([1.0, 1, 0, 0], (rows, 1)),
        assumption="Few sets miss it.",
    )


def press(page: "Page", keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def state(page: "Page") -> tuple[str, str]:
    """The row that is shown, and how many are decided."""
    return page.locator("#card-title").inner_text(), page.locator("#tally").inner_text()


def tally(page: "Page") -> str:
    return state(page)[1]


def download(page: "Page", folder: Path) -> Path:
    with page.expect_download() as waiting:
        press(page, "d")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def reopen(page: "Page", text: str) -> None:
    Path(page.url.removeprefix("file://")).write_text(text, encoding="utf-8")
    page.reload()


def other_tab(page: "Page", script: str = "") -> "Page":
    tab = page.context.new_page()
    tab.add_init_script(script)
    tab.goto(page.url)
    return tab


def expect(place: "Locator") -> "LocatorAssertions":
    """Assertions that wait. Unlike `wait_for_function`, they need no `eval`, which pages forbid."""
    from playwright.sync_api import expect

    return expect(place)


def wait_for_tally(page: "Page", words: str) -> None:
    expect(page.locator("#tally")).to_have_text(words)


def decided_in(page: "Page", folder: Path, names: np.ndarray = NAMES) -> dict[int, int]:
    return read_decisions([download(page, folder)], np.arange(2, 42), names, KEY)


def test_rows_are_decided_by_keyboard_undone_downloaded_and_read_back(
    show: Open, tmp_path: Path
) -> None:
    page = show(page_of())
    assert page.get_by_role("button", name="Undo").is_disabled()
    press(page, "12s3")
    assert state(page) == ("Row 6", "3 of 40")
    assert decided_in(page, tmp_path) == {0: 0, 1: 0, 3: 2}  # of row 3 the second is the ant
    with (tmp_path / "decisions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == ["2", "3", "5"]
    assert all(line["when"].endswith("Z") and line["table"] == KEY for line in lines)
    press(page, "u")
    assert state(page) == ("Row 5", "2 of 40")
    press(page, "uuu")
    assert state(page) == ("Row 2", "0 of 40")
    for name in ("Undo", "Download"):
        assert page.get_by_role("button", name=name).is_disabled()


def test_a_table_is_cleaned_reviewed_and_cleaned_again(
    show: Open, pets: Path, run: Callable[..., Any]
) -> None:
    folder = pets.parent
    assert run(pets, "--wrong", "0.001").exit_code == 0
    asked = pd.read_csv(folder / "out" / "rows_for_review.csv")
    page = show((folder / "out" / "review.html").read_text(encoding="utf-8"))
    assert state(page)[0] == f"Row {asked['row'][0]}"
    assert page.locator(".cells dd").first.inner_text() == f"pet {asked['row'][0] - 2}"
    press(page, "11")
    path = str(download(page, folder))
    assert run(pets, "--wrong", "0.001", "--decisions", path, out="again").exit_code == 0
    table = pd.read_csv(folder / "again" / "table.csv")
    by_person = np.flatnonzero(table["resolved_by"] == "person") + 2
    assert sorted(by_person) == sorted(asked["row"][:2])
    reopen(page, (folder / "again" / "review.html").read_text(encoding="utf-8"))
    assert tally(page).startswith("0 of ")  # what is decided is not asked again,
    press(page, "1")
    lines = download(page, folder).read_text().splitlines()
    assert len(lines) == 1 + 3  # but stays among the decisions


def test_a_class_that_is_no_candidate_can_be_chosen_and_is_text(show: Open, tmp_path: Path) -> None:
    page = show(page_of())
    assert page.locator(".cells dd").nth(1).inner_text() == EVIL
    press(page, "o")
    assert page.evaluate("document.activeElement.id") == "other"
    page.locator("#other").select_option(EVIL)
    assert tally(page) == "1 of 40"
    assert decided_in(page, tmp_path) == {0: 3}
    press(page, "k")
    assert page.locator(".item .name").first.inner_text() == EVIL
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img").count() == 0


def test_names_with_line_ends_and_formulas_come_back_from_the_page(
    show: Open, tmp_path: Path
) -> None:
    names = np.array(["a\u2028b", "=c\rd", "e\x85\x0cf", "'-g"])
    page = show(page_of(names=names))
    press(page, "113")  # of row 2 the first choice is the first name, of row 3 the second
    page.locator("#other").select_option(index=4)
    assert decided_in(page, tmp_path, names) == {0: 0, 1: 1, 2: 2, 3: 3}
    with (tmp_path / "decisions.csv").open(encoding="utf-8", newline="") as file:
        decisions = [line["decision"] for line in csv.DictReader(file)]
    assert decisions == [names[0], f"'{names[1]}", names[2], f"'{names[3]}"]


def test_two_tabs_share_decisions_and_undo_takes_back_only_the_own_latest_word(
    show: Open, tmp_path: Path
) -> None:
    one = show(page_of())
    other = other_tab(one)
    press(one, "11")  # rows 2 and 3
    wait_for_tally(other, "2 of 40")
    assert state(other)[0] == "Row 2"  # a person may be reading it
    assert other.locator(".options button[aria-pressed=true] .name").inner_text() == "ant"
    press(other, "3")  # row 2 again
    expect(one.locator(".item .name").first).to_have_text("cöw")
    assert decided_in(one, tmp_path) == decided_in(other, tmp_path) == {0: 2, 1: 1}
    press(one, "uu")  # row 3 is open again; row 2 is not its own any more
    assert "changed in another tab" in one.locator("#said").inner_text()
    assert decided_in(one, tmp_path) == {0: 2}
    wait_for_tally(other, "1 of 40")
    press(other, "u")  # its own, so the ant is back
    press(other, "jj3")  # what is saved after that does not bring row 3 back
    wait_for_tally(one, "2 of 40")
    assert decided_in(other, tmp_path) == decided_in(one, tmp_path) == {0: 0, 2: 2}


def test_a_tab_that_heard_nothing_writes_over_nothing(show: Open, tmp_path: Path) -> None:
    """Messages between tabs may be late, or lost while a tab sleeps."""
    one = show(page_of())
    other = other_tab(one, "addEventListener('storage', (e) => e.stopImmediatePropagation());")
    press(one, "11")
    press(one, "u")
    press(other, "jj33")
    wait_for_tally(one, "3 of 40")
    one.reload()
    assert decided_in(one, tmp_path) == {0: 0, 2: 2, 3: 2}


def test_decisions_outlive_the_page_also_those_of_the_first_version_but_not_damaged_ones(
    show: Open, tmp_path: Path
) -> None:
    when = "2026-11-15T10:00:00.000Z"
    store = "([key, text]) => localStorage.setItem(`robustpll-review-${key}`, text)"
    page = show("<title>nothing</title>")
    rows = [["2", "ant", when], ["3", None, when], ["4", "cöw", when], 7, ["5"]]
    page.evaluate(store, [KEY, json.dumps(rows)])
    page.evaluate(store, [f"{KEY}/9", "[3]"])
    reopen(page, page_of())
    assert state(page) == ("Row 5", "2 of 40")
    press(page, "kkk3")  # row 2 again, otherwise
    reopen(page, page_of(key="another"))  # decisions of tables do not mix
    assert tally(page) == "0 of 40"
    reopen(page, page_of())
    assert decided_in(page, tmp_path) == {0: 2, 2: 2}
    other = other_tab(page)
    press(other, "1")
    wait_for_tally(page, "3 of 40")
    press(other, "u")
    wait_for_tally(page, "2 of 40")
    page.evaluate(store, [KEY, "{"])  # does not hide what is whole
    page.reload()
    assert decided_in(page, tmp_path) == {0: 2, 2: 2}


def test_a_browser_that_stores_nothing_says_so_when_it_happens(show: Open) -> None:
    page, full = show(page_of()), "Storage.prototype.setItem = () => { throw new Error('full'); }"
    alert = page.get_by_role("alert")
    assert not alert.is_visible()
    page.evaluate(f"() => {{ {full}; }}")
    press(page, "1")
    assert alert.inner_text().startswith("This browser does not keep decisions")
    page.add_init_script(full)
    page.reload()
    assert alert.is_visible()
    press(page, "1")
    assert tally(page) == "1 of 40"


def test_filters_narrow_the_rows_and_keys_type_in_fields(show: Open) -> None:
    page = show(page_of())
    count, box = page.locator("#found"), page.get_by_role("searchbox")
    press(page, "/")
    page.keyboard.type("pet 17")
    assert count.inner_text() == "2 of 40 rows"  # row 17, and pet 17 in row 19
    assert state(page) == ("Row 17", "0 of 40")  # 1 and 7 were typed, not chosen
    page.keyboard.press("Enter")
    press(page, "1")
    assert tally(page) == "1 of 40"
    box.fill("nowhere")
    assert state(page)[0] == "No row matches the filter."
    box.press("Escape")
    assert box.input_value() == ""
    assert page.evaluate("document.activeElement.id") == "list"
    for name, words in {"decided": "1 of 40", "open": "39 of 40", "all": "40"}.items():
        page.get_by_label("State").select_option(name)
        assert count.inner_text() == f"{words} rows"
    page.locator("#label").select_option(NAMES[1])
    assert count.inner_text() == "20 of 40 rows"


def test_the_list_is_sorted_and_only_rows_in_sight_are_drawn(show: Open) -> None:
    page = show(page_of(rows=1200))
    assert page.locator(".item").count() < 60
    page.locator("#scroller").evaluate("node => { node.scrollTop = 50_000; }")
    expect(page.locator(".item .small").filter(has_text="row 970 ")).to_have_count(1)
    assert page.locator(".item").count() < 60
    page.locator("#sort").select_option("label")
    assert page.locator(".item .name").first.inner_text() == "ant?"
    page.locator("#sort").select_option("row")
    page.locator("#list").focus()
    for key, row in (("End", 1201), ("ArrowUp", 1200), ("j", 1201), ("j", 1201)):  # the end stays
        page.keyboard.press(key)
        assert state(page)[0] == f"Row {row}"


def test_screen_readers_are_told_what_is_chosen_and_where_and_help_is_a_dialog(show: Open) -> None:
    page = show(page_of(picture=Picture(PIXEL, "../pet.png")))
    press(page, "1")
    assert page.get_by_role("status").last.inner_text() == "Row 2: ant. 1 of 40 decided."
    rows = page.get_by_role("listbox", name="Rows")
    current = rows.get_by_role("option", selected=True)
    assert current.get_attribute("aria-posinset") == "2"
    assert current.get_attribute("aria-setsize") == "40"
    assert rows.get_attribute("aria-activedescendant") == current.get_attribute("id")
    assert page.get_by_role("img", name="picture of row 3").count() == 1
    assert page.get_by_role("img", name="belief").count() >= 3
    assert page.get_by_role("progressbar", name="Decided").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((node) =>"
        " !node.textContent.trim() && !node.labels?.length).length"
    )
    assert unnamed == 0
    reopen(page, page_of(picture=Picture(fault="outside the folder")))
    assert page.locator(".face").inner_text().startswith("No picture: outside the folder")
    dialog = page.get_by_role("dialog", name="Keys")
    press(page, "?1")  # while help is open, other keys do nothing
    assert (dialog.is_visible(), tally(page)) == (True, "1 of 40")
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.get_by_role("button", name="And the others?").click()
    assert dialog.get_by_text("Few sets miss it.").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_ground(show: Open, contrast: Any, scheme: str) -> None:
    """By the contrast that WCAG asks of small text, 4.5."""
    page = show(page_of(), color_scheme=scheme)
    press(page, "1")
    places = (".item .small", ".item .share", ".item.decided .mark", ".chip", ".options .name")
    for place in (*places, ".options .note", ".cells dt", "#tally", "#download", "kbd"):
        assert contrast(page.locator(place).first) >= 4.5, place


def test_a_narrow_screen_cuts_nothing_off_and_a_page_without_scripts_says_why_it_is_empty(
    show: Open,
) -> None:
    page = show(page_of(), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    press(page, "1")
    assert tally(page) == "1 of 40"
    page = show(page_of(), java_script_enabled=False)
    assert page.get_by_text("scripts are off").is_visible()
