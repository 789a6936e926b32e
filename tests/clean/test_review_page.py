"""The review page in a real browser: decided by keyboard, kept, downloaded, read back."""

import codecs
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from robustpll.clean.decisions_file import CANNOT_TELL, EXCLUDE, RowKeys, read_decisions
from robustpll.clean.judge import judgement
from robustpll.clean.page import Picture, Shown, review_page
from robustpll.html import data_uri
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from playwright.sync_api import Locator, LocatorAssertions, Page

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=hacked=1>"
NAMES = np.array(["ant", 'bee, "large"', "cöw", EVIL])
KEY = "0123456789abcdef"
Open = Callable[..., "Page"]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
SIZES = pytest.mark.parametrize("width", [1280, 390])
LONG = "A story of an ant. " * 40 + "\n\nIt ends well."
# the first row with all that a row can have; columns are those of `rich`
FULL: dict[int, dict[str, Any]] = {
    0: {
        "cells": [(0, "pet 0"), (1, LONG), *((n, f"{n}.123456789") for n in range(2, 32))],
        "same": 2,
        "round": 2,
        "said": [["ada", "ant", "2026-11-15"], [EVIL, "exclude", "2026-11-16"]],
        "versions": [["size of the animal in all", "1.5", "2.5"], ["name", "x" * 40, "x" * 40]],
        "similar": [(30, ["1.23456", "b" * 200, ""]), (31, ["2", "c", "d"])],
    }
}


def picture_of(width: int, height: int) -> str:
    content = io.BytesIO()
    Image.new("RGB", (width, height), "green").save(content, "PNG")
    return data_uri(content.getvalue(), "image/png")


PICTURE = Picture(picture_of(96, 48), "../pet.png", large=picture_of(1024, 512))


def rich(**options: Any) -> str:
    """A page whose first row has all that a row can have."""
    columns = ["name", "story", *(f"feature {n}" for n in range(30))]
    reliability = {"ada": 0.954, "zoe": 0.41}
    about = {"columns": columns, "reliability": reliability, "shown": FULL}
    return page_of(**about | options)


def page_of(
    rows: int = 40,
    *,
    key: str = KEY,
    picture: Picture | None = None,
    names: np.ndarray = NAMES,
    shown: dict[int, dict[str, Any]] | None = None,
    unnamed: tuple[int, ...] = (),
    **options: Any,
) -> str:
    """Row 2 is the most doubtful, then 3, and so on; candidates of all are the first three.

    `shown` are fields of `Shown` by position. Rows that are `unnamed` look like the fourth class.
    """
    doubt = np.linspace(0.6, 0.1, rows)
    p = np.stack([1 - doubt, 0.5 * doubt, 0.3 * doubt, 0.2 * doubt], 1)
    p[1::2, :2] = p[1::2, 1::-1]  # every other one is a bee
    p[[*unnamed]] = [0.001, 0.001, 0.001, 0.997]
    matrix = np.tile([True, True, True, False], (rows, 1))
    y = Candidates(matrix, names, (matrix / 3).astype(np.float32))
    judged = judgement(y, Opinion.of_evidence(20 * p), torch.arange(rows * 1.0)[:, None])
    review = {"row": np.arange(2, rows + 2), "why": "ambiguous", "reason": "an ant or a bee"}
    usual: dict[str, Any] = {"columns": ["name", EVIL], "notes": 2, "table": KEY}
    usual["votes"] = Votes(pd.DataFrame({"ada": [names[0]] * rows, "zoe": [names[1]] * rows}))
    facts = [
        {"content": f"content {row}", "cells": [(0, f"pet {row}"), (1, EVIL)]}
        | (shown or {}).get(row, {})
        for row in range(rows)
    ]
    return review_page(
        "pets.csv",
        key,
        judged,
        pd.DataFrame(review),
        shown=[Shown(**fact) for fact in facts],
        pictures={} if picture is None else dict.fromkeys(range(rows), picture),
        assumption="Few sets miss it.",
        **usual | options,
    )


def wait_for_scripts(page: "Page") -> None:
    """On a busy machine they start late, and keys before that are lost."""
    title = page.locator("#card-title").filter(has_not_text="needs JavaScript")
    title.wait_for(state="attached")


def reload(page: "Page") -> None:
    page.reload()
    wait_for_scripts(page)


def press(page: "Page", keys: str) -> None:
    wait_for_scripts(page)
    page.bring_to_front()  # another tab may have got the keys
    for key in keys:
        page.keyboard.press(key)


def state(page: "Page") -> tuple[str, str]:
    """The row that is shown, and how many are decided."""
    wait_for_scripts(page)
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
    reload(page)


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
    keys = RowKeys(np.arange(2, 42), "another", [f"content {row}" for row in range(40)])
    return read_decisions([download(page, folder)], keys, names).settled


def test_rows_are_decided_by_keyboard_undone_downloaded_and_read_back(
    show: Open, tmp_path: Path
) -> None:
    page = show(page_of())
    assert page.get_by_role("button", name="Undo").is_disabled()
    press(page, "12s3")
    assert state(page) == ("Row 6", "3 of 40")
    assert decided_in(page, tmp_path) == {0: 0, 1: 0, 3: 2}  # of row 3 the second is the ant
    lines = lines_of(tmp_path / "decisions.csv")
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
    assert run(pets, "--wrong", "1e-6").exit_code == 0
    asked = pd.read_csv(folder / "out" / "rows_for_review.csv")
    page = show((folder / "out" / "review.html").read_text(encoding="utf-8"))
    assert state(page)[0] == f"Row {asked['row'][0]}"
    assert page.locator(".cells dd").first.inner_text() == f"pet {asked['row'][0] - 2}"
    press(page, "11")
    path = str(download(page, folder))
    assert run(pets, "--wrong", "1e-6", "--decisions", path, out="again").exit_code == 0
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
    reload(one)
    assert decided_in(one, tmp_path) == {0: 0, 2: 2, 3: 2}


def test_decisions_outlive_the_page_also_those_of_the_first_version_but_not_damaged_ones(
    show: Open, tmp_path: Path
) -> None:
    when = "2026-11-15T10:00:00.000Z"
    store = "([key, text]) => localStorage.setItem(`robustpll-review-${key}`, text)"
    page = show("<title>nothing</title>")
    rows = [["2", "ant", when], ["3", None, when], ["4", "cöw", when], 7, ["5"]]
    page.evaluate(store, [KEY, json.dumps(rows)])
    page.evaluate("localStorage.setItem('robustpll-decisions-0123456789abcdef/content 9', '[3]')")
    reopen(page, page_of())
    assert state(page) == ("Row 5", "2 of 40")
    press(page, "kkk3")  # row 2 again, otherwise
    reopen(page, page_of(key="another", table="other"))  # decisions of tables do not mix
    assert tally(page) == "0 of 40"
    reopen(page, page_of())
    assert decided_in(page, tmp_path) == {0: 2, 2: 2}
    other = other_tab(page)
    press(other, "1")
    wait_for_tally(page, "3 of 40")
    press(other, "u")
    wait_for_tally(page, "2 of 40")
    page.evaluate(store, [KEY, "{"])  # does not hide what is whole
    reload(page)
    assert decided_in(page, tmp_path) == {0: 2, 2: 2}


def test_a_browser_that_stores_nothing_says_so_when_it_happens(show: Open) -> None:
    page, full = show(page_of()), "Storage.prototype.setItem = () => { throw new Error('full'); }"
    alert = page.get_by_role("alert")
    assert not alert.is_visible()
    page.evaluate(f"() => {{ {full}; }}")
    press(page, "1")
    assert alert.inner_text().startswith("This browser does not keep decisions")
    page.add_init_script(full)
    reload(page)
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
    assert page.get_by_role("img", name="probability").count() >= 3
    assert page.get_by_role("progressbar", name="Decided").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((node) =>"
        " !node.textContent.trim() && !node.labels?.length"
        " && !node.querySelector('img[alt]')).length"
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
    page = show(rich(picture=PICTURE), color_scheme=scheme)
    new = ("#headline", ".said li", ".changed td", ".answers td", ".answers thead th", "summary")
    for place in (*new, ".similar td", ".all output", "#accept", ".text", "figcaption a"):
        assert contrast(page.locator(place).first) >= 4.5, place
    press(page, "a")
    assert contrast(page.locator("#accept.sure")) >= 4.5
    press(page, "1")
    places = (".item .small", ".item .share", ".item.decided .mark", ".chip", ".options .name")
    for place in (*places, ".options .note", ".cells dt", "#tally", "#download", "kbd"):
        assert contrast(page.locator(place).first) >= 4.5, place


def test_a_narrow_screen_cuts_nothing_off_and_a_page_without_scripts_says_why_it_is_empty(
    show: Open,
) -> None:
    page = show(rich(picture=PICTURE), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    press(page, "f")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    press(page, "1")
    assert tally(page) == "1 of 40"
    page = show(page_of(), java_script_enabled=False)
    assert page.get_by_text("scripts are off").is_visible()


def test_the_question_about_other_rows_leads_to_its_answer(show: Open) -> None:
    page = show(page_of(), viewport={"width": 1000, "height": 400})
    page.locator("#why").click()
    expect(page.locator("#others")).to_be_in_viewport()


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def opened(show: Open, width: int, text: str) -> "Page":
    """A page of some width; nothing is cut off at its side."""
    page = show(text, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    return page


@SIZES
@pytest.mark.parametrize("by", ["keys", "mouse"])
def test_classes_doubt_and_exclusion_are_decided_at_any_width(
    show: Open, tmp_path: Path, width: int, by: str
) -> None:
    page = opened(show, width, page_of())

    def act(key: str, name: str) -> None:
        if by == "keys":
            press(page, key)
        else:
            page.locator("#card, .acts").get_by_role("button", name=name).first.click()

    for key, name in (("1", "ant"), ("c", "Cannot tell"), ("x", "Exclude"), ("s", "Skip")):
        act(key, name)
    act("2", "ant")  # of row 6 the first is the ant, so 2 is the bee by keys
    expected = 1 if by == "keys" else 0
    assert state(page) == ("Row 7", "4 of 40")
    decisions = {0: 0, 1: CANNOT_TELL, 2: EXCLUDE, 4: expected}
    assert decided_in(page, tmp_path) == decisions
    names = page.locator(".item .name").all_inner_texts()[:4]
    assert names == ["ant", "cannot tell", "excluded", 'bee, "large"? (skipped)']
    act("u", "Undo")
    assert state(page) == ("Row 6", "3 of 40")
    page.locator(".item").nth(1).click()
    assert page.get_by_role("button", name="Cannot tell").get_attribute("aria-pressed") == "true"
    reload(page)
    assert tally(page) == "3 of 40"
    with page.expect_download() as waiting:  # by mouse
        page.get_by_role("button", name="Download").click()
    waiting.value.save_as(tmp_path / "d.csv")
    kinds = [line["kind"] for line in lines_of(tmp_path / "d.csv")]
    assert kinds == ["label", "cannot tell", "exclude"]


@SIZES
def test_a_row_shows_annotators_similar_rows_texts_and_few_features(show: Open, width: int) -> None:
    page = opened(show, width, rich())
    answers = page.locator(".answers tbody tr").all_inner_texts()
    assert [text.split("\t") for text in answers] == [
        ["ada", "ant", "95 %"],
        ["zoe", 'bee, "large"', "41 %"],
    ]
    similar = page.locator(".similar tbody tr")
    assert similar.count() == 2
    assert "ant" in similar.first.inner_text()
    assert (similar.first.locator(".feature").first.is_visible()) == (width > 1000)
    assert similar.first.locator(".feature").all_text_contents()[0] == "1.235"
    assert page.locator("p.text").inner_text() == LONG
    facts = page.locator(".cells > dl dd")
    assert facts.count() == 1 + 12  # the name, and features
    assert facts.nth(1).inner_text() == "2.123"  # four digits
    folded = page.locator(".cells details dd")
    assert (folded.count(), folded.first.is_visible()) == (18, False)
    page.get_by_text("18 more features").click()
    assert folded.first.inner_text() == "14.12"
    assert "2 equal rows share this decision" in page.locator("#headline").inner_text()
    assert page.evaluate("typeof hacked") == "undefined"


@SIZES
def test_pictures_and_texts_are_shown_in_full_size_by_key_click_and_enter(
    show: Open, width: int
) -> None:
    page = opened(show, width, rich(picture=PICTURE))
    image, text = page.locator("#picture img"), page.locator("p.text")

    def sizes() -> tuple[int, int]:
        box, words = image.bounding_box(), text.bounding_box()
        assert box is not None
        assert words is not None
        return round(box["width"]), round(words["height"])

    expect(image).to_have_css("width", "192px")
    small = sizes()
    assert small[0] == 192  # enlarged, to judge it by
    room = 600 if width > 1000 else 300
    for act in ("f", "click", "Enter"):
        for is_large in (True, False):
            if act == "click":
                page.locator("#picture").click()
            elif act == "Enter":
                page.locator("#picture").focus()
                page.keyboard.press("Enter")
            else:
                press(page, "f")
            assert (sizes()[0] > room) == is_large
            assert (sizes()[1] > small[1]) in (is_large, False)
            assert page.evaluate("document.documentElement.scrollWidth") == width
    press(page, "f1")
    assert image.get_attribute("src") == PICTURE.large  # the next row is shown as large


@pytest.mark.parametrize(
    ("size", "width", "enlarged", "is_sharp"),
    [
        ((8, 8), 192, 384, True),
        ((28, 28), 196, 392, True),
        ((20, 60), 80, 140, True),
        ((96, 96), 192, 384, False),
        ((320, 240), 320, 640, False),
    ],
)
def test_small_pictures_are_enlarged_and_their_pixels_stay_squares(
    show: Open, size: tuple[int, int], width: int, enlarged: int, is_sharp: bool
) -> None:
    page = show(page_of(picture=Picture(picture_of(*size), "../pet.png")))
    image = page.locator("#picture img")
    for expected in (width, enlarged):
        expect(image).to_have_css("width", f"{expected}px")
        box = image.bounding_box()
        assert box is not None
        assert round(box["height"]) == round(expected * size[1] / size[0])
        rendering = image.evaluate("image => getComputedStyle(image).imageRendering")
        assert (rendering == "pixelated") == is_sharp
        press(page, "f")


def test_the_list_shows_the_probability_of_the_label_and_the_headline_names_the_leading_class(
    show: Open,
) -> None:
    names = np.array(["ant", "bee", "cow", "dodo"])
    page = show(page_of(names=names, unnamed=(1,)))
    item, headline = page.locator(".item"), page.locator("#headline")
    share = page.locator(".options button .number").first.inner_text()
    assert item.nth(0).locator(".share").inner_text() == share
    bar = page.locator(".options button .bar").first
    assert bar.get_attribute("aria-label") == f"probability {share}"
    filled = bar.evaluate("bar => bar.firstChild.offsetWidth / bar.offsetWidth")
    assert filled == pytest.approx(float(share.removesuffix(" %")) / 100, abs=0.02)
    shares = page.locator(".options .alone").all_inner_texts()  # with what is undecided, all of it
    percents = [float(text.split()[-2]) for text in shares]
    assert sum(percents) == pytest.approx(100, abs=len(percents))
    assert headline.inner_text() == f"Probably ant ({share})."
    press(page, "j")
    assert headline.inner_text().startswith("Looks like dodo (")
    assert headline.inner_text().endswith("%), which nobody named.")
    assert "looks like dodo" in item.nth(1).locator(".small").inner_text()
    assert page.locator(".options button .name").first.inner_text() == "dodo"  # by key 1
    labels = page.locator(".options button").filter(has_text="no vote")
    assert labels.locator(".name").all_inner_texts() == ["dodo"]
    press(page, "1")
    assert item.nth(1).locator(".name").inner_text() == "dodo"


@SIZES
@pytest.mark.parametrize("by", ["keys", "mouse"])
def test_all_labels_of_a_filtered_list_are_accepted_and_undone_after_reloading(
    show: Open, tmp_path: Path, width: int, by: str
) -> None:
    conflict: Any = {2: {"said": [["ada", "ant", "2026-11-15"]]}}
    page = opened(show, width, page_of(unnamed=(4,), shown=conflict))
    press(page, "3")  # row 2 is decided by hand
    page.locator("#label").select_option("ant")
    accept = page.locator("#accept")

    def act() -> None:
        if by == "keys":
            press(page, "a")
        else:
            accept.click()

    # of 20 ants one is decided, one was decided differently, and one looks like another class
    expect(accept).to_have_text("Accept all 17 labels a")
    act()
    expect(accept).to_have_text("Really accept 17? a")
    assert tally(page) == "1 of 40"
    page.locator("#label").select_option("")  # another list, so it asks again
    expect(accept).to_have_text("Accept all 37 labels a")
    page.locator("#label").select_option("ant")
    act()
    act()
    assert tally(page) == "18 of 40"
    settled = decided_in(page, tmp_path)
    assert (len(settled), settled.pop(0), {*settled.values()}) == (18, 2, {0})
    reload(page)
    page.locator("#label").select_option("ant")
    page.locator(".item").nth(3).click()
    press(page, "2")  # row 8, one of the accepted ones, is decided by hand and stays so
    undo = page.get_by_role("button", name="Undo accepting 17")
    undo.click()
    assert page.get_by_role("status").last.inner_text().startswith("16 rows open again")
    assert not undo.is_visible()
    assert decided_in(page, tmp_path) == {0: 2, 6: 1}
    reload(page)
    assert page.locator("#unaccept").is_hidden()


def test_u_undoes_accepting_all_at_once(show: Open) -> None:
    page = show(page_of())
    press(page, "1aa")
    assert tally(page) == "40 of 40"
    press(page, "u")
    assert tally(page) == "1 of 40"


@SIZES
def test_what_people_said_and_both_versions_are_shown_and_a_new_decision_has_a_new_round(
    show: Open, tmp_path: Path, width: int
) -> None:
    page = opened(show, width, page_of())
    press(page, "1")
    assert tally(page) == "1 of 40"
    reopen(page, rich())  # the first row has a conflict now, and is asked again
    assert state(page) == ("Row 2", "0 of 40")
    assert page.locator(".said li").all_inner_texts() == [
        "ada: ant on 2026-11-15",
        f"{EVIL}: exclude on 2026-11-16",
    ]
    changed = page.locator(".said tr.changed")
    assert changed.all_inner_texts() == ["size of the animal in all\t1.5\t2.5"]
    press(page, "3")
    path = download(page, tmp_path)
    assert path.read_bytes().startswith(codecs.BOM_UTF8)  # or else a spreadsheet shows cÃ¶w
    lines = lines_of(path)
    said = sorted((line["decision"], line["round"]) for line in lines)  # both in one second
    assert said == [("ant", "1"), ("cöw", "2")]
    assert decided_in(page, tmp_path) == {0: 2}
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_reviewer_is_asked_once_and_named_in_the_file(show: Open, tmp_path: Path) -> None:
    snapshot = json.dumps({"size": "1,5", "note": 'a "b"'})
    facts: Any = {row: {"id": f"=id {row}", "snapshot": snapshot} for row in range(40)}
    page = show(page_of(shown=facts))
    press(page, "1")  # before there is a name
    page.get_by_label("Reviewer").fill(" Ada, =1 ")
    page.keyboard.press("Tab")
    reload(page)
    assert page.get_by_label("Reviewer").input_value() == "Ada, =1"
    press(page, "1")
    first, second = lines_of(download(page, tmp_path))
    assert first["reviewer"] == second["reviewer"] == "Ada, =1"
    assert (first["id"], first["content"]) == ("'=id 0", "content 0")
    assert json.loads(first["cells"]) == json.loads(snapshot)
    page.get_by_label("Reviewer").fill("Bob")
    page.keyboard.press("Tab")
    press(page, "1")
    named = [line["reviewer"] for line in lines_of(download(page, tmp_path))]
    assert named == ["Bob", "Ada, =1", "Bob"]  # the first one was decided without a name


def test_decisions_in_the_browser_survive_another_page_of_the_table(
    show: Open, tmp_path: Path
) -> None:
    page = show(page_of())
    press(page, "1c")
    expect(page.locator("#tally")).to_have_text("2 of 40")
    facts: Any = {0: {"content": "changed"}, 1: {"content": "content 39"}}
    facts |= {2: {"content": "content 1"}}  # rows moved
    reopen(page, page_of(shown=facts, table="changed"))
    for place, text in enumerate(["ant?", 'bee, "large"?', "cannot tell"]):
        expect(page.locator(".item .name").nth(place)).to_have_text(text)
    assert tally(page) == "1 of 40"
    assert len(lines_of(download(page, tmp_path))) == 2  # the other one stays in the file


def test_two_people_review_a_table_and_a_third_settles_their_conflict(
    show: Open, pets: Path, run: Callable[..., Any]
) -> None:
    folder, options = pets.parent, ("--wrong", "1e-6", "--id", "name")
    assert run(pets, *options).exit_code == 0

    def decide(name: str, keys: str, out: str) -> list[str]:
        page = show((folder / out / "review.html").read_text(encoding="utf-8"))  # a new browser
        page.get_by_label("Reviewer").fill(name)
        page.keyboard.press("Tab")
        page.locator("#list").focus()
        press(page, keys)
        path = download(page, folder).rename(folder / f"{name}.csv")
        return ["--decisions", str(path)]

    files = [*decide("ada", "1xc", "out"), *decide("bob", "cxc", "out")]
    result = run(pets, *options, *files, out="again")
    assert "decided by several people: 3 rows, 66.7% alike, Cohen's kappa 0.50" in result.stdout
    assert "rows that people cannot tell: 1; excluded: 1" in result.stdout
    files += decide("eve", "c", "again")  # the conflict comes first
    result = run(pets, *options, *files, out="third")
    assert "rows that people cannot tell: 2; excluded: 1" in result.stdout
    assert "decided differently" not in result.stdout
    table = pd.read_csv(folder / "third" / "table.csv", keep_default_na=False)
    counts = table["resolved_by"].value_counts()
    assert (counts["person: cannot tell"], counts["excluded"]) == (2, 1)
    assert "person" not in counts
