"""The report of a benchmark: tables and figures as files, and a page that shows all of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robustpll import plots
from robustpll._files import OutFolder
from robustpll.bench.summary import MEASURES, Summary
from robustpll.bench.tables import PUBLISHED, PUBLISHED_PAIR, TEXTS, Table, all_tables, number
from robustpll.datasets.catalog import entry_of
from robustpll.html import Column, LongTable, render_page
from robustpll.tables.source import safe_csv

Tables = Mapping[str, Table]  # by name
Pictures = dict[str, dict[str, Any]]  # by name: name, title, caption, svg and png

TEMPLATE = Path(__file__).with_name("report.html.j2")
RUN = ["label", "dataset", "seed"]
DETAILS = ["key", "seconds_train", "seconds_examine", "machine"]


def write_report(summary: Summary, out: str | Path) -> Path:
    """Write the report of a summary into a folder, and return the path of its page.

    `index.html` shows everything and needs no other file. `tables/` has each table as Markdown,
    LaTeX and CSV, `figures/` each figure as SVG and PNG, `runs.csv` a line for each run and
    condition. From `runs.parquet` `read_summary` makes the summary again. The same summary gives
    the same bytes. Files that a report did not write, or that were changed, are never replaced.
    """
    out = Path(out)
    folder, *_ = (OutFolder.of(path, "report") for path in (out, out / "tables", out / "figures"))
    folder.refuse_others(["runs.csv", "runs.parquet", "index.html"])
    tables = all_tables(summary)
    pictures = all_pictures(summary, tables)
    files: dict[str, str | bytes] = {}
    for name, table in tables.items():
        files[f"tables/{name}.md"] = table.to_markdown()
        files[f"tables/{name}.tex"] = table.to_latex()
        files[f"tables/{name}.csv"] = table.to_csv()
    for name, picture in pictures.items():
        files |= {f"figures/{name}.{kind}": picture[kind] for kind in ("svg", "png")}
    files["runs.csv"] = safe_csv(summary.runs, index=False, float_format="%.6g")
    files["runs.parquet"] = summary.to_parquet()
    files["index.html"] = page(summary, tables, pictures)
    for name, content in files.items():
        folder.write(name, content.encode() if isinstance(content, str) else content)
    return out / "index.html"


def all_pictures(summary: Summary, tables: Tables) -> Pictures:
    """Return all figures that the summary has results for, by name."""
    pictures: Pictures = {}

    def add(name: str, title: str, caption: str, figure: Any) -> None:
        files = {kind: plots.picture_bytes(figure, kind) for kind in ("svg", "png")}
        pictures[name] = {"name": name, "title": title, "caption": caption, **files}

    for pair in summary.grid.ood:
        if panels := entropy_panels(summary, *pair):
            name = "entropy" if pair == PUBLISHED_PAIR else f"entropy-{'-'.join(pair)}"
            title = f"Entropies: {' and '.join(entry_of(name).title for name in pair)}"
            add(name, title, TEXTS["captions"]["entropy"], plots.distribution_lines(panels))
    for name, title, curves in attack_curves(summary, tables):
        add(name, title, TEXTS["captions"]["attack"], plots.attack_panels(curves, title))
    return pictures


def entropy_panels(summary: Summary, dataset: str, other: str) -> list[dict[str, Any]]:
    """Return the curves of up to four methods of each group: those of the paper, or else others."""
    panels = []
    for group in ("single", "ensemble"):
        lines = [line for line in summary.lines if line.group == group]
        lines = [line for line in lines if (line.label, dataset, other) in summary.curves]
        lines = [line for line in lines if line.method.name in TEXTS["drawn"]] or lines
        panels.append({e.label: summary.curves[e.label, dataset, other] for e in lines[:4]})
    return [panel for panel in panels if panel]


def attack_curves(summary: Summary, tables: Tables) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield names, titles, and accuracies by method and epsilon of the cells that lack no runs."""
    for table in (t for name, t in tables.items() if name.startswith(("table-3", "attack-"))):
        cells = table.cells[table.cells["label"].isin(summary.attacked)]
        cells = cells[cells["runs"] == cells["asked"]].astype({"column": float})
        by_label = cells.set_index("column").groupby("label", sort=False)["value"]
        if curves := {str(label): values.to_dict() for label, values in by_label}:
            yield table.name.replace("table-3", "attack"), table.title, curves


def page(summary: Summary, tables: Tables, pictures: Pictures) -> str:
    """Return the page. It has the dates of the runs, and not its own."""
    missing = summary.missing.drop_duplicates([*RUN, "reason"])
    sections = []
    for title, starts in TEXTS["sections"].items():
        names = [name for name in (*tables, *pictures) if name.startswith(tuple(starts))]
        shown = [_page_table(tables[name], tables) for name in names if name in tables]
        figures = [pictures[name] for name in names if name in pictures]
        anchor = title.lower().replace(" ", "-")
        if names:
            section = {"title": title, "anchor": anchor, "tables": shown, "figures": figures}
            sections.append(section)
    return render_page(
        TEMPLATE,
        summary=summary,
        stored=len(summary.runs[RUN].drop_duplicates()),
        seconds=float(summary.timing[["seconds_train", "seconds_examine"]].to_numpy().sum()),
        missing=missing.groupby("reason").size().to_dict(),
        verdicts=[(f"Table {name[-1]}", t.notes[0]) for name, t in tables.items() if t.beside],
        sections=sections,
        runs=_run_table(summary),
        number=number,
        entry_of=entry_of,
    )


def _page_table(table: Table, tables: Tables) -> dict[str, Any]:
    """Return what the template needs of a table, with the paper's numbers if it has any."""
    twin = tables.get(table.name.replace("table-", "compare-"), table)
    cells = table.cells.reindex(columns=[*table.cells.columns, *PUBLISHED]).astype(object)
    if twin.beside:
        cells = table.cells.merge(twin.cells[["label", "column", *PUBLISHED]], "left")
    numeric = cells["value"].notna().groupby(cells["column"]).any()
    plain = cells.astype(object).where(cells.notna(), None)
    return {
        "name": table.name,
        "title": table.title,
        "head": table.head,
        "columns": [(column, bool(numeric[column])) for column in table.columns],
        "groups": [
            [(rows["label"].iloc[0], rows.to_dict("records")) for _, rows in group.groupby("line")]
            for _, group in plain.groupby("group")
        ],
        "notes": dict.fromkeys(table.notes + twin.notes),
        "beside": twin.beside,
        "judged": bool(cells["agrees"].notna().any()),
    }


def _run_table(summary: Summary) -> LongTable:
    """Return all runs under all conditions; rows of one run open the same details."""
    columns = [
        Column("method", choose=True, in_details=False),
        Column("dataset", choose=True, in_details=False),
        Column("seed", 0, in_details=False),
        Column("condition", choose=True),
        *(Column(m.title, m.decimals, in_table=m.in_table) for m in MEASURES.values()),
    ]
    plans = {(plan.label, plan.dataset, plan.seed): plan for plan in summary.grid.runs()}
    runs, details = summary.runs, []
    for record in runs.drop_duplicates(RUN).to_dict("records"):
        label, dataset, seed = (record[name] for name in RUN)
        description = plans[label, dataset, seed].description
        method, noise = description["method"], description["noise"]
        facts = {name: record[name] for name in DETAILS}
        parts = {"Run": facts, f"Method: {method['class']}": method["fields"]}
        parts["Candidates"] = noise or {"noise": "none: the dataset has candidates"}
        details.append((f"{label} on {entry_of(dataset).title}, seed {seed}", parts))
    cells = runs[[*RUN, "condition", *MEASURES]].astype(object)
    cells.loc[runs["part"] == "train", "condition"] = "training rows"
    for name, measure in MEASURES.items():
        # Two decimals more than shown: numbers that look equal are sorted, and the page is small.
        cells[name] = [round(measure.scale * value, measure.decimals + 2) for value in runs[name]]
    opens = runs.groupby(RUN, sort=False).ngroup().tolist()
    rows = cells.astype(object).to_numpy().tolist()
    return LongTable("runs", columns, rows, details, opens)
