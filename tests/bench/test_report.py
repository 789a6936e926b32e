"""The report: all of a summary in files, and a page that says what is known and what is not."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll.bench.contents import all_figures, all_tables
from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.report import write_report
from robustpll.bench.report_page import page
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import Summary, summarize
from robustpll.cli import app
from robustpll.errors import InputError

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVIL = "<script>alert(1)</script>"
MNIST = {"Proden": 0.935, "RobustPll": 0.9, EVIL: 0.8}  # published: 93.2 and 96.0
Show = Callable[..., "Page"]


@pytest.fixture
def grid() -> Grid:
    evil = {"name": "rc", "label": EVIL, "epochs": 3}
    return Grid.of(
        {
            "name": "mine",
            "preset": "paper",
            "methods": ["pl_knn", "proden", "robust_pll", evil, "proden_ens"],
            "datasets": ["mnist", "lost", "soccer"],
            "seeds": 2,
            "epsilons": [0.1],
            "attacked": ["lost"],
            "ood": [["mnist", "notmnist"]],
        }
    )


@pytest.fixture
def stored(grid: Grid, store: ResultStore, made: SimpleNamespace) -> ResultStore:
    """No run on soccer; one run failed, and one was never made."""

    def answers(planned: PlannedRun, condition: Condition) -> dict[str, Any]:
        if condition.part == "ood":
            return made.unknown(np.linspace(0.4, 1, 100))
        best = MNIST.get(planned.label, 0.5) if planned.run.dataset == "mnist" else 0.7
        return made.share_right(best + 0.001 * planned.run.seed - 2 * condition.epsilon)

    store.keep_grid(grid)
    for number, planned in enumerate(grid.runs()):
        if planned.run.dataset == "soccer" or number == 3:
            continue
        if number == 1:
            store.failed(planned.run, f"It ran out of memory. {EVIL}")
        else:
            made.keep(store, planned, answers)
    return store


@pytest.fixture
def summary(stored: ResultStore, grid: Grid) -> Summary:
    return summarize(stored, grid)


def text_of(markup: str) -> str:
    """What a reader without scripts sees, with one space between words."""
    words: list[str] = []
    inside: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, _: inside.append(tag)  # type: ignore[method-assign]
    reader.handle_data = (
        lambda data: (  # type: ignore[method-assign]
            words.append(data) if inside[-1:] not in (["script"], ["style"]) else None
        )
    )
    reader.feed(markup)
    return " ".join(" ".join(words).split())


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_same_store_gives_the_same_bytes(
    stored: ResultStore, grid: Grid, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        write_report(summarize(stored, grid), tmp_path / name)
    one, two = (files_of(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert {"index.html", "runs.csv", "environment.json"} <= set(one)


def test_a_report_replaces_only_what_a_report_wrote(summary: Summary, tmp_path: Path) -> None:
    write_report(summary, tmp_path)
    before = files_of(tmp_path)
    write_report(summary, tmp_path)
    assert files_of(tmp_path).keys() == before.keys()
    (tmp_path / "runs.csv").write_text("mine")
    with pytest.raises(InputError, match=r"holds runs\.csv, not written by robustpll report"):
        write_report(summary, tmp_path)
    assert (tmp_path / "runs.csv").read_text() == "mine"


def test_every_table_and_figure_is_in_files_and_on_the_page(
    summary: Summary, tmp_path: Path
) -> None:
    markup = write_report(summary, tmp_path).read_text()
    text = text_of(markup)
    tables = all_tables(summary)
    assert {"table-1", "table-2", "table-3", "compare-1", "missing"} <= {t.name for t in tables}
    for table in tables:
        assert (tmp_path / "tables" / f"{table.name}.md").read_text() == table.to_markdown()
        assert (tmp_path / "tables" / f"{table.name}.tex").read_text() == table.to_latex()
        assert (tmp_path / "tables" / f"{table.name}.csv").read_text() == table.to_csv()
        assert table.notes == () or table.notes[-1] in text
        if not table.beside and table.name not in ("missing", "datasets"):
            assert table.title in text
    figures = all_figures(summary)
    assert {"entropy", "attack-lost", "timing"} <= {figure.name for figure in figures}
    for figure in figures:
        drawn = (tmp_path / "figures" / f"{figure.name}.svg").read_bytes()
        assert base64.b64encode(drawn).decode() in markup
        assert (tmp_path / "figures" / f"{figure.name}.png").read_bytes()[1:4] == b"PNG"


def test_the_runs_and_the_grid_can_be_read_back(summary: Summary, tmp_path: Path) -> None:
    write_report(summary, tmp_path)
    runs = pd.read_csv(tmp_path / "runs.csv", keep_default_na=False, na_values=[""])
    for name in ("label", "dataset", "seed", "condition", "machine", "key"):
        assert runs[name].tolist() == summary.runs[name].tolist()
    np.testing.assert_allclose(runs["accuracy"], summary.runs["accuracy"], rtol=1e-5)
    told = json.loads((tmp_path / "environment.json").read_text())
    assert Grid.of_json(json.dumps(told["grid"])) == summary.grid
    assert told["machine"] == ["a machine"]
    assert told["seconds"]["Proden"] == {"runs": 4, "train": 8.0, "examine": 4.0}


def test_the_page_says_first_what_was_done_when_and_what_is_missing(
    summary: Summary, tmp_path: Path
) -> None:
    text = text_of(write_report(summary, tmp_path).read_text())
    assert "5 methods on 2 of 3 datasets with 2 seeds: 18 of 30 runs are stored." in text
    assert "made on 2 January 2026 on a machine with robustpll 0 and torch 2" in text
    assert "10 runs on Soccer Player: none of them is stored" in text
    assert "1 run not made yet, or not under all conditions; 1 run failed." in text


def test_nothing_missing_is_said_too(small: Grid, full: ResultStore, tmp_path: Path) -> None:
    text = text_of(write_report(summarize(full, small), tmp_path).read_text())
    assert "36 of 36 runs are stored" in text
    assert "Nothing is missing." in text


def test_a_label_with_markup_is_text(summary: Summary, tmp_path: Path) -> None:
    markup = write_report(summary, tmp_path).read_text()
    assert markup.count("<script") == 2  # the data of the runs, and the script of every page
    assert EVIL in text_of(markup)


def test_a_report_of_no_runs_says_so(store: ResultStore, grid: Grid, tmp_path: Path) -> None:
    text = text_of(write_report(summarize(store, grid), tmp_path / "report").read_text())
    assert "0 of 30 runs are stored." in text


def test_a_file_in_the_place_of_the_folder_is_refused(summary: Summary, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(InputError, match="out must be a folder"):
        write_report(summary, tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"


def test_the_page_of_the_whole_paper_stays_small(summary: Summary) -> None:
    """Figures apart: they are about a megabyte."""
    paper = Grid.named("paper")
    template = summary.runs.iloc[0].to_dict()
    rows = [
        template
        | {"label": each.label, "dataset": each.run.dataset, "seed": each.run.seed}
        | {"condition": condition.name, "key": each.run.key}
        | dict(zip(("accuracy", "entropy", "brier"), draw.tolist(), strict=True))
        for each in paper.runs()
        for condition, draw in zip(
            each.conditions, np.random.default_rng(0).random((9, 3)), strict=False
        )
    ]
    assert len(rows) > 3000
    whole = replace(summary, grid=paper, runs=pd.DataFrame(rows))
    assert len(page(whole, [], []).encode()) < 1_000_000


def test_the_command_writes_the_report_and_says_where(stored: ResultStore, tmp_path: Path) -> None:
    out = tmp_path / "report"
    done = CliRunner().invoke(
        app, ["bench", "report", "--store", str(stored.root), "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out / 'index.html'}\n"
    assert (out / "index.html").exists()


def test_the_command_asks_which_of_several_grids(
    stored: ResultStore, small: Grid, tmp_path: Path
) -> None:
    stored.keep_grid(small)
    words = ["bench", "report", "--store", str(stored.root), "--out", str(tmp_path / "report")]
    assert CliRunner().invoke(app, [*words, "mine"]).exit_code == 0
    for more in ([], ["audit"], ["another"]):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 1
        assert "it has mine, small." in done.stderr


def test_a_grid_of_the_library_that_was_run_in_parts_is_reported(
    stored: ResultStore, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    words = ["bench", "report", "paper", "--store", str(stored.root), "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    missing = (out / "tables" / "missing.md").read_text()
    assert "MNIST" in missing
    runs = pd.read_csv(out / "runs.csv")
    assert set(runs["label"]) == {"PlKnn", "Proden", "RobustPll", "Proden+Ens"}


@pytest.fixture
def shown(show: Show, summary: Summary, tmp_path: Path) -> "Page":
    return show(write_report(summary, tmp_path / "report").read_text())


@pytest.mark.browser
def test_a_switch_shows_the_published_numbers_beside_ours(shown: "Page") -> None:
    row = shown.locator("#accuracy .beside tr", has_text="RobustPll").first
    published = row.locator("td").first.locator(".paper")
    assert not published.is_visible()
    shown.get_by_label("published beside ours").first.check()
    assert published.is_visible()
    assert published.inner_text().split() == ["paper:", "96.0", "±", "0.1"]


@pytest.mark.browser
def test_agreement_is_told_by_colour_and_sign(shown: "Page") -> None:
    cells = {
        name: shown.locator("#accuracy .beside tr", has_text=name).first.locator("td").first
        for name in ("RobustPll", "Proden", EVIL)
    }
    signs = {name: cell.locator("[aria-hidden]").inner_text() for name, cell in cells.items()}
    assert signs == {"RobustPll": "▼", "Proden": "=", EVIL: ""}
    paint = "node => getComputedStyle(node).backgroundColor"
    colours = {name: cell.evaluate(paint) for name, cell in cells.items()}
    assert len(set(colours.values())) == 3


@pytest.mark.browser
def test_runs_are_filtered_and_a_run_shows_all_that_is_known_of_it(
    shown: "Page", grid: Grid
) -> None:
    shown.get_by_label("method").select_option(EVIL)
    shown.get_by_label("dataset").select_option("lost")
    runs = shown.get_by_role("table", name="Each run")
    assert runs.locator("tbody tr").count() == 4  # two seeds, clean and attacked
    runs.locator("tbody td:nth-child(5)").last.click()
    dialog = shown.get_by_role("dialog", name=f"{EVIL} on Lost, seed 1")
    assert dialog.locator("tbody tr").count() == 2
    facts = dict(zip(*(dialog.locator(tag).all_inner_texts() for tag in ("dt", "dd")), strict=True))
    (planned,) = (
        each
        for each in grid.runs()
        if (each.label, each.run.dataset, each.run.seed) == (EVIL, "lost", 1)
    )
    assert facts["key"] == planned.run.key
    assert facts["epochs"] == "3"
    assert facts["machine"] == "a machine"


@pytest.mark.browser
def test_what_is_folded_opens_and_pictures_are_drawn(shown: "Page") -> None:
    table = shown.get_by_role("table", name="Accuracy on Lost under attack")
    assert not table.is_visible()
    shown.get_by_text("Accuracy on Lost under attack").first.click()
    assert table.is_visible()
    drawn = "nodes => nodes.every((node) => node.complete && node.naturalWidth > 0)"
    assert shown.locator("figure img").evaluate_all(drawn)
