"""The report: all of a summary in files, and a page that says what is known and what is not."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from robustpll.bench.grid import Condition, Grid, Run
from robustpll.bench.report import (
    all_pictures,
    attack_curves,
    entropy_panels,
    page,
    write_report,
)
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import COLUMNS, Summary, summarize
from robustpll.bench.tables import TEXTS, all_tables
from robustpll.errors import InputError

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVIL = "<script>alert(1)</script>"
MNIST = {"Proden": 0.935, "RobustPll": 0.9, EVIL: 0.8}  # published: 93.2 and 96.0
Show = Callable[..., "Page"]


@pytest.fixture(scope="module")
def grid() -> Grid:
    evil = {"name": "rc", "label": EVIL, "epochs": 3}
    methods = ["pl_knn", "proden", "robust_pll", evil, "proden_ens"]
    plain = {"name": "mine", "preset": "paper", "methods": methods, "seeds": 2, "epsilons": [0.1]}
    datasets = {"datasets": ["mnist", "lost", "soccer"], "attacked": ["lost"]}
    return Grid.of(plain | datasets | {"ood": [["mnist", "notmnist"]]})


@pytest.fixture(scope="module")
def stored(grid: Grid, made: Any, tmp_path_factory: pytest.TempPathFactory) -> ResultStore:
    """No run on soccer; one run failed, and one was never made. Tests only read it."""
    store = ResultStore(tmp_path_factory.mktemp("stored"))

    def answers(run: Run, condition: Condition) -> dict[str, Any]:
        if condition.part == "ood":
            return made.unknown(np.linspace(0.4, 1, 100))
        best = MNIST.get(run.label, 0.5) if run.dataset == "mnist" else 0.7
        return made.share_right(best + 0.001 * run.seed - 2 * condition.epsilon)

    store.keep_grid(grid)
    for number, run in enumerate(grid.runs()):
        if number == 1:
            store.failed(run, f"It ran out of memory. {EVIL}")
        elif run.dataset != "soccer" and number != 3:
            made.keep(store, run, answers)
    return store


@pytest.fixture(scope="module")
def summary(stored: ResultStore, grid: Grid) -> Summary:
    return summarize(stored, grid)


@pytest.fixture(scope="module")
def report(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report. Tests only read it."""
    return write_report(summary, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def markup(report: Path) -> str:
    return (report / "index.html").read_text()


def text_of(markup: str) -> str:
    """What a reader without scripts sees, with one space between words."""
    shown = re.sub(r"<(script|style).*?</\1>", " ", markup, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_report_replaces_only_what_a_report_wrote(tmp_path: Path) -> None:
    nothing = summarize(ResultStore(tmp_path / "empty"), Grid.named("quick"))
    out = tmp_path / "report"
    write_report(nothing, out)
    before = files_of(out)
    write_report(nothing, out)
    assert files_of(out).keys() == before.keys()
    (out / "runs.csv").write_text("mine")
    with pytest.raises(InputError, match=r"holds runs\.csv, not written by robustpll report"):
        write_report(nothing, out)
    assert (out / "runs.csv").read_text() == "mine"
    with pytest.raises(InputError, match="out must be a writable folder"):
        write_report(nothing, out / "runs.csv")


def test_every_table_figure_and_run_is_in_files_and_on_the_page(
    summary: Summary, report: Path, markup: str
) -> None:
    text, tables = text_of(markup), all_tables(summary)
    assert {"table-1", "table-2", "table-3", "compare-1", "missing"} <= tables.keys()
    for name, table in tables.items():
        texts = {"md": table.to_markdown(), "tex": table.to_latex(), "csv": table.to_csv()}
        for kind, content in texts.items():
            assert (report / "tables" / f"{name}.{kind}").read_text() == content
        assert all(note in text for note in table.notes)
        assert table.beside or name in ("missing", "datasets", "timing") or table.title in text
    names = {path.stem for path in (report / "figures").glob("*.svg")}
    assert {"entropy", "attack-lost"} <= names
    for name in names:
        drawn = (report / "figures" / f"{name}.svg").read_bytes()
        assert base64.b64encode(drawn).decode() in markup
        assert (report / "figures" / f"{name}.png").read_bytes()[1:4] == b"PNG"
    runs = pd.read_csv(report / "runs.csv", keep_default_na=False, na_values=[""])
    for name in ("label", "dataset", "seed", "condition", "machine", "key"):
        assert runs[name].tolist() == summary.runs[name].tolist()
    np.testing.assert_allclose(runs["accuracy"], summary.runs["accuracy"], rtol=1e-5)


def test_the_page_says_first_what_was_done_when_and_what_is_missing(markup: str) -> None:
    text = text_of(markup)
    for sentence in (
        "5 methods on 2 of 3 datasets with 2 seeds: 18 of 30 runs are stored.",
        "They were made on 2026-01-02 on a machine with robustpll 0 and torch 2",
        "and took 54 seconds of computing.",
        "10 runs on datasets without any stored run",
        "1 run not run yet, or not under all conditions; 1 run failed.",
    ):
        assert sentence in text
    assert markup.count("<script") == 2  # the data of the runs, and the script of every page
    assert EVIL in text, "a label with markup is text"


def test_a_page_says_that_nothing_or_everything_is_missing(
    small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    text = text_of(page(summarize(full, small), {}, {}))
    assert "4 methods on 3 datasets with 3 seeds: 36 of 36 runs are stored." in text
    assert "Nothing is missing." in text
    text = text_of(page(summarize(ResultStore(tmp_path / "empty"), small), {}, {}))
    assert "0 of 36 runs are stored." in text


def test_the_page_of_the_whole_paper_stays_small(summary: Summary) -> None:
    """Figures apart: they are about a megabyte."""
    paper, draws = Grid.named("paper"), np.random.default_rng(0)
    rows = [
        summary.runs.iloc[0].to_dict()
        | {"label": run.label, "dataset": run.dataset, "seed": run.seed, "key": run.key}
        | {"accuracy": draws.random(), "entropy": draws.random(), "brier": draws.random()}
        for run in paper.runs()
        for _ in run.conditions
    ]
    assert len(rows) > 3000
    whole = replace(summary, grid=paper, planned=pd.DataFrame(rows, columns=COLUMNS))
    assert len(page(whole, {}, {}).encode()) < 1_000_000


def test_the_command_writes_the_same_bytes_from_the_same_store_and_again_from_its_runs(
    made: Any, stored: ResultStore, report: Path, tmp_path: Path
) -> None:
    out, before = tmp_path / "one", files_of(report)
    done = made.command("report", "--store", stored.root, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out / 'index.html'}\n"
    assert files_of(out) == before
    assert {"index.html", "runs.csv", "runs.parquet"} <= before.keys()
    runs, out = report / "runs.parquet", tmp_path / "again"
    assert made.command("report", "mine", "--store", runs, "--out", out).exit_code == 0
    again = files_of(out)
    assert again.keys() == before.keys()
    # Curves are stored to five decimals, so lines of entropies may differ by less.
    same = {name for name in before if "entropy" not in name}
    same -= {"index.html", ".robustpll-report.json"}
    assert {name: again[name] for name in same} == {name: before[name] for name in same}
    assert text_of(again["index.html"].decode()) == text_of(before["index.html"].decode())


def test_the_command_refuses_what_runs_parquet_or_the_store_does_not_hold(
    made: Any, report: Path, store: ResultStore, grid: Grid, tmp_path: Path
) -> None:
    store.keep_grid(grid)
    store.keep_grid(Grid.named("quick"))
    (tmp_path / "nonsense").write_text("nonsense")
    one_grid, which = "holds one version of the grid 'mine'", "it has mine, quick."
    for source, more, said in (
        (report / "runs.parquet", ["paper"], one_grid),
        (report / "runs.parquet", ["--version", "lost=usual"], one_grid),
        (tmp_path / "nonsense", [], "is not the runs.parquet of a report"),
        (store.root, [], which),
        (store.root, ["audit"], which),
        (store.root, ["another"], which),
    ):
        refused = made.command("report", *more, "--store", source, "--out", tmp_path / "out")
        assert refused.exit_code == 1
        assert said in " ".join(refused.stderr.split())


def test_a_grid_of_the_library_that_was_run_in_parts_is_reported(
    made: Any, stored: ResultStore, tmp_path: Path
) -> None:
    words = ("report", "paper", "--store", stored.root, "--out", tmp_path)
    assert made.command(*words).exit_code == 0
    assert "MNIST" in (tmp_path / "tables" / "missing.md").read_text()
    runs = pd.read_csv(tmp_path / "runs.csv")
    assert set(runs["label"]) == {"PlKnn", "Proden", "RobustPll", "Proden+Ens"}


@pytest.mark.parametrize(
    ("methods", "panels"),
    [
        (  # those of the paper, singles and ensembles
            ["robust_pll_ens", "rc", "proden", "dst_pll", "robust_pll", "proden_ens"],
            [["Proden", "DstPll", "RobustPll"], ["RobustPll+Ens", "Proden+Ens"]],
        ),
        (["rc", "cc"], [["Rc", "Cc"]]),  # others, if there are none of the paper's
    ],
)
def test_the_figure_of_entropies_has_the_papers_methods(
    store: ResultStore, methods: list[str], panels: list[list[str]]
) -> None:
    plain = {"methods": methods, "datasets": ["digits"], "seeds": 1, "ood": [["digits", "lost"]]}
    summary, line = summarize(store, Grid.of(plain)), np.array([[0.0, 1.0]])
    curves = {(entry.label, "digits", "lost"): (line, line) for entry in summary.lines}
    drawn = entropy_panels(replace(summary, curves=curves), "digits", "lost")
    assert [list(panel) for panel in drawn] == panels


def test_a_report_has_the_figures_that_its_runs_allow(
    small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    summary = summarize(full, small)
    names = list(all_pictures(summary, all_tables(summary)))
    attacks = ["attack", "attack-lost", "attack-msrc-v2", "attack-fg-net"]
    assert names == attacks
    full.path(next(run for run in small.runs() if run.label == "Proden")).unlink()
    summary = summarize(full, small)
    drawn = attack_curves(summary, all_tables(summary))
    curves = {name: points for name, _, points in drawn}
    half = {0.0: pytest.approx(51), 0.1: pytest.approx(41)}
    assert curves["attack-lost"] == {"RobustPll": half, "Proden+Ens": half}, "Proden lacks runs"
    summary = summarize(ResultStore(tmp_path / "empty"), small)
    assert all_pictures(summary, all_tables(summary)) == {}


@pytest.mark.browser
def test_a_switch_shows_published_numbers_and_agreement_has_colour_and_sign(
    show: Show, markup: str
) -> None:
    shown = show(markup)
    cells = {
        name: shown.locator("#accuracy .beside tr", has_text=name).first.locator("td").first
        for name in ("RobustPll", "Proden", EVIL)
    }
    published = cells["RobustPll"].locator(".paper")
    assert not published.is_visible()
    shown.get_by_label("published beside ours").first.check()
    assert published.is_visible()
    assert published.inner_text().split() == ["paper:", "96.0", "±", "0.1"]
    signs = {name: cell.locator("[aria-hidden]").inner_text() for name, cell in cells.items()}
    assert signs == {"RobustPll": "▼", "Proden": "=", EVIL: ""}
    paint = "node => getComputedStyle(node).backgroundColor"
    assert len({cell.evaluate(paint) for cell in cells.values()}) == 3


@pytest.mark.browser
def test_runs_are_filtered_and_open_and_pictures_are_drawn(
    show: Show, markup: str, grid: Grid
) -> None:
    shown = show(markup)
    table = shown.get_by_role("table", name="Accuracy on Lost under attack")
    assert not table.is_visible()
    shown.get_by_text("Accuracy on Lost under attack").first.click()
    assert table.is_visible()
    drawn = "nodes => nodes.every((node) => node.complete && node.naturalWidth > 0)"
    assert shown.locator("figure img").evaluate_all(drawn)
    shown.get_by_label("method").select_option(EVIL)
    shown.get_by_label("dataset").select_option("lost")
    runs = shown.get_by_role("table", name="Each run")
    assert runs.locator("tbody tr").count() == 4  # two seeds, clean and attacked
    runs.locator("tbody td:nth-child(5)").last.click()
    dialog = shown.get_by_role("dialog", name=f"{EVIL} on Lost, seed 1")
    assert dialog.locator("tbody tr").count() == 2
    facts = dict(zip(*(dialog.locator(tag).all_inner_texts() for tag in ("dt", "dd")), strict=True))
    (run,) = (r for r in grid.runs() if (r.label, r.dataset, r.seed) == (EVIL, "lost", 1))
    assert (facts["key"], facts["epochs"], facts["machine"]) == (run.key, "3", "a machine")


def test_every_table_of_a_page_has_a_section() -> None:
    starts = tuple(start for names in TEXTS["sections"].values() for start in names)
    assert [name for name in TEXTS["titles"] if not name.startswith(starts)] == []
