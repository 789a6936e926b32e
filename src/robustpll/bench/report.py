"""The report of a benchmark: tables and figures as files, and a page that shows all of it."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustpll._files import OutFolder
from robustpll.bench.grid import Condition
from robustpll.bench.measures import MEASURES
from robustpll.bench.summary import Summary
from robustpll.bench.tables import (
    PUBLISHED,
    PUBLISHED_PAIR,
    TEXTS,
    Table,
    all_tables,
    attacked_sets,
    cells_of,
    csv_text,
    number,
    ranked,
    strengths,
    title_of,
)
from robustpll.errors import InputError
from robustpll.html.shell import Column, Details, LongTable, render_page
from robustpll.plots.bench import attack_panels, rank_diagram, time_bars
from robustpll.plots.curves import distribution_lines
from robustpll.plots.style import picture_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = TEXTS["captions"]
TEMPLATE = Path(__file__).with_name("report.html.j2")
PANELS = (  # the methods of the paper's figure
    ("proden", "proden_edl", "dst_pll", "robust_pll"),
    ("proden_dropout", "proden_ens", "proden_adv_ens", "robust_pll_ens"),
)
SECTIONS = {  # tables and figures by the beginnings of their names
    "Accuracy": ("table-1", "real-world", "extra", "resolved", "ranks"),
    "Calibration": ("calibration",),
    "Rows of no known class": ("table-2", "ood", "entropy"),
    "Attacks": ("table-3", "attack"),
    "Worst case under the audit": ("audit",),
    "Time and cost": ("timing", "sessions"),
    "Datasets": ("datasets",),
    "Missing runs": ("missing",),
}
RUN = ["label", "dataset", "seed"]


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure of a report; its files have its name."""

    name: str
    title: str
    caption: str
    figure: "Figure"

    @cached_property
    def svg(self) -> bytes:
        return picture_bytes(self.figure, "svg")


def write_report(summary: Summary, out: str | Path) -> Path:
    """Write the report of a summary into a folder, and return the path of its page.

    `index.html` shows everything and needs no other file. `tables/` has each table as Markdown,
    LaTeX and CSV, `figures/` each figure as SVG and PNG, `runs.csv` a line for each run and
    condition, `environment.json` the grid, machines and times. From `runs.parquet` `read_summary`
    makes the summary again. The same summary gives the same bytes. Files that a report did not
    write, or that were changed since, are never replaced; `.robustpll-report.json` records them.

    >>> import tempfile
    >>> from robustpll.bench import Grid, ResultStore, summarize
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = summarize(ResultStore(folder), Grid.named("quick"))
    ...     path = write_report(summary, Path(folder) / "report")
    ...     sorted(file.name for file in path.parent.glob("[a-z]*"))
    ['environment.json', 'figures', 'index.html', 'runs.csv', 'runs.parquet', 'tables']
    """
    out = Path(out)
    try:
        for folder in (out / "tables", out / "figures"):
            folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"out must be a folder, or the name of a new one; {error.filename} is a file."
        ) from error
    files = OutFolder.of(out, "report")
    files.refuse_others(["runs.csv", "runs.parquet", "environment.json", "index.html"])
    tables, figures = all_tables(summary), all_figures(summary)
    for name, table in tables.items():
        files.write(f"tables/{name}.md", table.to_markdown().encode())
        files.write(f"tables/{name}.tex", table.to_latex().encode())
        files.write(f"tables/{name}.csv", table.to_csv().encode())
    for figure in figures:
        files.write(f"figures/{figure.name}.svg", figure.svg)
        files.write(f"figures/{figure.name}.png", picture_bytes(figure.figure, "png"))
    files.write("runs.csv", csv_text(summary.runs, float_format="%.6g").encode())
    files.write("runs.parquet", summary.to_parquet())
    names = {"runs": "runs", "seconds_train": "train", "seconds_examine": "examine"}
    seconds = summary.timing.set_index("label")[list(names)].round(3).rename(columns=names)
    environment = {
        "grid": json.loads(summary.grid.to_json()),
        **summary.facts,
        **({"contents": dict(summary.contents)} if summary.contents else {}),
        "sessions": summary.sessions,
        "seconds": seconds.to_dict("index"),
    }
    text = json.dumps(environment, indent=1, ensure_ascii=False) + "\n"
    files.write("environment.json", text.encode())
    files.write("index.html", page(summary, tables, figures).encode())
    return out / "index.html"


def all_figures(summary: Summary) -> tuple[ReportFigure, ...]:
    """Return all figures that the summary has results for."""
    return (*_entropy_figures(summary), *_attack_figures(summary), *_other_figures(summary))


def _entropy_figures(summary: Summary) -> Iterator[ReportFigure]:
    for pair in summary.grid.ood:
        if panels := entropy_panels(summary, *pair):
            name = "entropy" if pair == PUBLISHED_PAIR else f"entropy-{'-'.join(pair)}"
            title = f"Entropies: {' and '.join(map(title_of, pair))}"
            yield ReportFigure(name, title, CAPTIONS["entropy"], distribution_lines(panels))


def entropy_panels(summary: Summary, dataset: str, other: str) -> list[dict[str, Any]]:
    """Return the curves of the paper's eight methods in its two panels; else of other methods.

    Of several lines with one method the first is drawn.
    """
    lines = [line for line in summary.lines if (line.label, dataset, other) in summary.curves]
    first = {line.method: line for line in reversed(lines)}
    panels = [[first[method] for method in methods if method in first] for methods in PANELS]
    if not any(panels):
        panels = [lines[:4], lines[4:8]]
    return [
        {line.label: summary.curves[line.label, dataset, other] for line in panel}
        for panel in panels
        if panel
    ]


def _attack_figures(summary: Summary) -> Iterator[ReportFigure]:
    pool = attacked_sets(summary)
    pooled = f"Real-world sets pooled: {', '.join(map(title_of, pool))}"
    plans = [("attack", pooled, pool)] if len(pool) > 1 else []
    plans += [(f"attack-{name}", title_of(name), (name,)) for name in summary.stored]
    attacked = [line.label for line in summary.lines if line.attacked]
    for name, title, datasets in plans:
        steps = strengths(summary, *datasets)
        curves: dict[str, dict[float, float]] = {}
        for epsilon in steps if len(steps) > 1 else ():
            cells = cells_of(summary, datasets, Condition("test", epsilon)).loc[attacked]
            complete = cells["value"][cells["runs"] == cells["asked"]].dropna()
            for label, value in complete.items():
                curves.setdefault(str(label), {})[epsilon] = value / 100
        if curves:
            ordered = {label: curves[label] for label in attacked if label in curves}
            figure = attack_panels(ordered, title)
            yield ReportFigure(name, f"Attack: {title}", CAPTIONS["attack"], figure)


def _other_figures(summary: Summary) -> Iterator[ReportFigure]:
    if ranks := ranked(summary):
        average, distance, caption = ranks
        yield ReportFigure("ranks", "Average ranks", caption, rank_diagram(average, distance))
    columns = summary.timing[["label", "seconds_train", "seconds_examine"]]
    if seconds := {m: (train, test) for m, train, test in columns.itertuples(index=False)}:
        caption = CAPTIONS["timing"].format(machines=", ".join(summary.facts["machine"]))
        yield ReportFigure("timing", "Time by method", caption, time_bars(seconds))


def page(summary: Summary, tables: Mapping[str, Table], figures: Sequence[ReportFigure]) -> str:
    """Return the page. It has the dates of the runs, and not its own.

    >>> from robustpll.bench import Grid, ResultStore, summarize
    >>> nothing = summarize(ResultStore("nowhere"), Grid.named("quick"))
    >>> f"0 of {len(nothing.grid.runs())} runs are stored" in page(nothing, {}, [])
    True
    """
    missing = summary.missing.drop_duplicates([*RUN, "reason"])
    return render_page(
        TEMPLATE,
        summary=summary,
        stored=len(summary.runs[RUN].drop_duplicates()),
        days=list(map(date.fromisoformat, summary.facts["date"])),
        seconds=float(summary.timing[["seconds_train", "seconds_examine"]].to_numpy().sum()),
        missing=missing.groupby("reason").size().to_dict(),
        absent=[title_of(d) for d in missing["dataset"][missing["reason"] == "no data"].unique()],
        verdicts=[(f"Table {name[-1]}", t.notes[0]) for name, t in tables.items() if t.beside],
        sections=_sections(tables, figures),
        runs=_run_table(summary),
        number=number,
        title_of=title_of,
    )


def _sections(tables: Mapping[str, Table], figures: Sequence[ReportFigure]) -> list[dict[str, Any]]:
    """Return the sections of the page; what is about one dataset is folded away."""
    shown = {name: _page_table(t, tables) for name, t in tables.items() if not t.beside}
    folded = {name: shown.pop(name) for name in list(shown) if name.startswith("attack-")}
    sections = []
    for title, names in SECTIONS.items():
        section = {
            "title": title,
            "anchor": title.lower().replace(" ", "-"),
            "tables": [table for name, table in shown.items() if name.startswith(names)],
            "figures": [f for f in figures if f.name.startswith(names) and f.name not in folded],
            "folded": [
                (table, [figure for figure in figures if figure.name == name])
                for name, table in folded.items()
                if name.startswith(names)
            ],
        }
        if section["tables"] or section["figures"] or section["folded"]:
            sections.append(section)
    return sections


def _page_table(table: Table, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return what the template needs of a table, with the paper's numbers if it has any."""
    twin = tables.get(table.name.replace("table-", "compare-"), table)
    cells = table.cells.reindex(columns=[*table.cells.columns, *PUBLISHED]).astype(object)
    if twin.beside:
        cells = table.cells.merge(twin.cells[["label", "column", *PUBLISHED]], "left")
    notes = tuple(dict.fromkeys(table.notes + twin.notes))
    numeric = cells["value"].notna().groupby(cells["column"]).any()
    plain = cells.astype(object).where(cells.notna(), None)
    groups = [
        [(rows["label"].iloc[0], rows.to_dict("records")) for _, rows in group.groupby("line")]
        for _, group in plain.groupby("group")
    ]
    columns = [(column, bool(numeric[column])) for column in table.columns]
    facts = {"title": table.title, "head": table.head, "columns": columns, "groups": groups}
    judged = bool(cells["agrees"].notna().any())
    return facts | {"notes": notes, "beside": twin.beside, "judged": judged}


def _run_table(summary: Summary) -> LongTable:
    """Return all runs under all conditions; rows of one run open the same details."""
    columns = [
        Column("method", choose=True, in_details=False),
        Column("dataset", choose=True, in_details=False),
        Column("seed", 0, in_details=False),
        Column("condition", choose=True),
        *(Column(m.heading, m.decimals, in_table=m.in_table) for m in MEASURES.values()),
    ]
    plans = {(plan.label, plan.dataset, plan.seed): plan for plan in summary.grid.runs()}
    rows: list[tuple[Any, ...]] = []
    details: list[Details] = []
    opens: dict[tuple[str, str, int], int] = {}
    for record in summary.runs.to_dict("records"):
        run = (record["label"], record["dataset"], record["seed"])
        if run not in opens:
            opens[run] = len(details)
            details.append(_details(record, plans[run].description))
        # Two decimals more than shown: numbers that look equal are sorted, and the page is small.
        numbers = (
            None if math.isnan(record[name]) else round(m.scale * record[name], m.decimals + 2)
            for name, m in MEASURES.items()
        )
        condition = "training rows" if record["part"] == "train" else record["condition"]
        rows.append((*run, condition, *numbers))
    return LongTable("runs", columns, rows, details, [opens[row[:3]] for row in rows])


def _details(record: Mapping[Any, Any], description: Mapping[str, Any]) -> Details:
    facts = {
        "key": record["key"],
        "seconds of training": round(record["seconds_train"], 3),
        "seconds of examining": round(record["seconds_examine"], 3),
        "machine": record["machine"],
    }
    method, noise = description["method"], description["noise"]
    return Details(
        f"{record['label']} on {title_of(record['dataset'])}, seed {record['seed']}",
        {
            "Run": facts,
            f"Method: {method['class']}": method["fields"],
            "Candidates": noise or {"noise": "none: the dataset has candidates"},
        },
    )
