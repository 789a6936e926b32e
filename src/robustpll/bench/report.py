"""The report of a benchmark: tables and figures as files, and a page that shows all of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from robustpll._files import OutFolder
from robustpll.bench.contents import all_figures, all_tables
from robustpll.bench.report_page import page
from robustpll.errors import InputError
from robustpll.plots.style import picture_bytes

if TYPE_CHECKING:
    from robustpll.bench.summary import Summary


def write_report(summary: "Summary", out: str | Path) -> Path:
    """Write all that a summary amounts to into a folder; hands back the path of the page.

    `tables/` has each table as Markdown, LaTeX and CSV, `figures/` each figure as SVG and PNG,
    `runs.csv` a line for each run and condition, `environment.json` the grid, where it ran and
    for how long. `index.html` shows all of it and needs none of the other files. The same summary
    gives the same bytes. Files that a report did not write, or that were changed since, are never
    replaced; `.robustpll-report.json` records them.

    >>> import tempfile
    >>> from robustpll.bench.grid import Grid
    >>> from robustpll.bench.store import ResultStore
    >>> from robustpll.bench.summary import summarize
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nothing = summarize(ResultStore(folder), Grid.named("quick"))
    ...     path = write_report(nothing, Path(folder) / "report")
    ...     sorted(each.name for each in path.parent.iterdir())
    ['.robustpll-report.json', 'environment.json', 'figures', 'index.html', 'runs.csv', 'tables']
    """
    out = Path(out)
    _make_folders(out)
    folder = OutFolder.of(out, "report")
    folder.refuse_others(["runs.csv", "environment.json", "index.html"])
    tables = all_tables(summary)
    for table in tables:
        forms = {"md": table.to_markdown(), "tex": table.to_latex(), "csv": table.to_csv()}
        for kind, text in forms.items():
            folder.write(f"tables/{table.name}.{kind}", text.encode())
    figures = all_figures(summary)
    for each in figures:
        folder.write(f"figures/{each.name}.svg", each.svg)
        folder.write(f"figures/{each.name}.png", picture_bytes(each.figure, "png"))
    runs = summary.runs.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    folder.write("runs.csv", runs.encode())
    folder.write("environment.json", _environment(summary).encode())
    folder.write("index.html", page(summary, tables, figures).encode())
    return out / "index.html"


def _make_folders(out: Path) -> None:
    try:
        for folder in (out / "tables", out / "figures"):
            folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        msg = f"out must be a folder, or the name of a new one; {error.filename} is a file."
        raise InputError(msg) from error


def _environment(summary: "Summary") -> str:
    """What was asked for, where it ran, and for how long."""
    told = {
        "grid": json.loads(summary.grid.to_json()),
        **{name: list(values) for name, values in summary.facts.items()},
        **({"contents": dict(summary.contents)} if summary.contents else {}),
        "sessions": summary.sessions,
        "seconds": {
            row["label"]: {
                "runs": row["runs"],
                "train": round(row["seconds_train"], 3),
                "examine": round(row["seconds_examine"], 3),
            }
            for row in summary.timing.to_dict("records")
        },
    }
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
