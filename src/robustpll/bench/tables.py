"""The tables of a report: one row per cell, written as Markdown, LaTeX and CSV."""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from robustpll._display import Displayed
from robustpll.bench.grid import MOST_AUDITED, REAL_WORLD, Condition
from robustpll.bench.summary import MEASURES, Measure, Summary
from robustpll.datasets.catalog import entry_of
from robustpll.datasets.noise import InstanceDependent
from robustpll.measures.significance import LEVEL, bold, single_best
from robustpll.tables.source import safe_csv

Columns = dict[str, tuple[Sequence[str], Condition]]  # heading -> datasets that are pooled, how

PICTURES = {"mnist": "MNIST", "fmnist": "FMNIST", "kmnist": "KMNIST", "notmnist": "NotMNIST"}
POOLED = "real-world"
CLEAN = Condition("test")
MEAN = "mean"
SECONDS = Measure("seconds", lambda _: math.nan, (), decimals=2, is_loss=True)  # of a training
OOD_HEADS = {"area": "CDF area", "ks": "KS", "mmd": "MMD"}
CROWDS = ("crowds", "votes")  # kinds of datasets
PUBLISHED_PAIR = ("mnist", "notmnist")
PLACE = ["group", "line", "label", "column", "decimals"]
EMPTY = {"value": math.nan, "std": math.nan, "bold": 0, "runs": 0, "asked": 0, "note": ""}
CELL = list(EMPTY)  # a note stands in place of a value
PUBLISHED = ["published", "published_std", "difference", "tolerance", "agrees", "why_not"]
TEXTS = tomllib.loads(Path(__file__).with_name("report_texts.toml").read_text("utf-8"))
RULES, SHOWN = TEXTS["rules"], TEXTS["measures"]
OFF = "✗"  # marks a number that differs from the paper's by more than the tolerance
LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", OFF: r"$\times$"}
)


@dataclass(frozen=True, eq=False, repr=False)
class Table(Displayed):
    """A table of a report."""

    name: str  # of its files: "table-1"
    title: str
    cells: pd.DataFrame  # a row per cell: `PLACE` and `CELL`; beside the paper's also `PUBLISHED`
    notes: tuple[str, ...] = ()  # what a reader must know, below the table
    head: str = "method"  # above the labels

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(self.cells["column"]))

    @property
    def beside(self) -> bool:
        """Whether cells show the paper's numbers, too."""
        return "published" in self.cells

    def texts(self, escape: Callable[[str], str] = str, strong: str = "{}") -> pd.DataFrame:
        """Return all cells as text: a row for each line, the label first."""
        texts = []
        for cell in self.cells.itertuples(index=False):
            text = escape(cell_text(cell))
            texts.append(strong.format(text) if cell.bold else text)
        cells = self.cells.assign(text=texts, label=self.cells["label"].map(escape))
        wide = cells.pivot(index=["group", "line", "label"], columns="column", values="text")
        wide = wide[self.columns].reset_index("label")
        return wide.set_axis([escape(name) for name in (self.head, *self.columns)], axis="columns")

    def to_markdown(self) -> str:
        """Return the title as a heading, the table, and the notes as a list."""
        align = ("left", *("right" for _ in self.columns))
        wide = self.texts(in_markdown, "**{}**")
        body = wide.to_markdown(index=False, colalign=align, disable_numparse=True)
        notes = "".join(f"- {in_markdown(note)}\n" for note in self.notes)
        return f"## {in_markdown(self.title)}\n\n{body}\n" + (f"\n{notes}" if notes else "")

    def to_latex(self) -> str:
        """Return a floating table with rules between groups; it needs the package booktabs."""
        wide = self.texts(in_latex, r"\textbf{{{}}}")
        lines = wide.to_latex(
            index=False,
            escape=False,
            column_format="l" + "r" * len(self.columns),
            caption=in_latex(self.title),
            label="tab:" + re.sub("[^a-z0-9-]", "-", self.name.lower()),
        ).splitlines()
        first = lines.index(r"\midrule") + 1
        for size in wide.groupby(level="group").size().cumsum().tolist()[-2::-1]:
            lines.insert(first + size, r"\midrule")
        notes = [f"\\par\\footnotesize {in_latex(note)}" for note in self.notes]
        return "\n".join([*lines[:-1], *notes, lines[-1]]) + "\n"

    def to_csv(self) -> str:
        """Return one line for each cell, with unrounded numbers."""
        columns = ["label", "column", *CELL, *(PUBLISHED if self.beside else ())]
        cells = self.cells[columns].astype({"agrees": "Int64"} if self.beside else {})
        return safe_csv(cells.rename(columns={"label": self.head}), index=False)


def number(value: float, decimals: int, sign: str = "-") -> str:
    """Return a number with thousands separated, and never minus 0."""
    return f"{value:{sign}z,.{decimals}f}"


def cell_text(cell: Any) -> str:
    """Return a cell as a reader sees it: "95.9 ± 0.2", "missing", "95.9, paper 97.5, -1.6 ✗"."""
    published, has_value = getattr(cell, "published", math.nan), not math.isnan(cell.value)
    text = number(cell.value, cell.decimals) if has_value else str(cell.note)
    if not math.isnan(cell.std) and math.isnan(published):
        text += f" ± {number(cell.std, cell.decimals)}"
    if has_value and cell.runs < cell.asked:
        text += f" ({cell.runs} of {cell.asked} runs)"
    if not math.isnan(published):
        text += f", paper {number(published, cell.decimals)}"
        text += f", {number(cell.difference, cell.decimals, '+')}" if has_value else ""
        text += f" {OFF}" if cell.agrees == 0 else ""
    return text


def in_markdown(text: str) -> str:
    """Return text that Markdown shows unchanged, also inside a table."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", plain)


def in_latex(text: str) -> str:
    """Return text that LaTeX prints unchanged."""
    return " ".join(text.split()).translate(LATEX)


def all_tables(summary: Summary) -> dict[str, Table]:
    """Return all tables that the summary has results for, by name; those of the paper first."""
    tables = [*_measure_tables(summary), *_ood_tables(summary)]
    papers = [table for n in (1, 2, 3) for table in tables if table.name == f"table-{n}"]
    beside = filter(None, (compared_table(summary, table) for table in papers))
    others = (*_rank_tables(summary), *_other_tables(summary))
    return {table.name: table for table in (*papers, *beside, *tables, *others)}


def _measure_tables(summary: Summary) -> Iterator[Table]:
    """Yield tables of accuracy and other measures, means over seeds, as far as there are runs."""
    tables, has_mean = _columns_of_tables(summary), _has_tables(summary)
    seeds, labels = len(summary.grid.seeds), [line.label for line in summary.lines]
    rule = RULES["one-seed" if seeds == 1 else "mean"].format(seeds=seeds, level=LEVEL)
    for name, columns in tables.items():
        if not columns:
            continue
        measure = SHOWN.get(name, "accuracy")
        lines = summary.attacked if name == "table-3" else labels
        cells = {h: cells_of(summary, *c, measure).loc[lines] for h, c in columns.items()}
        datasets, _ = list(columns.values())[-1]  # in Table 1 this is the pooled column
        words = {"dataset": _titles(datasets), "count": str(len(datasets))}
        is_pooled = POOLED in columns or name == "table-3"
        notes = [rule, *([RULES["pooled"].format(**words)] if is_pooled else [])]
        if has_mean and len(columns) > 1 and name in (*SHOWN, "accuracy", "resolved"):
            cells[MEAN] = _mean_cells(summary, cells, measure)
            notes.append(RULES["over-datasets"])
        if name in TEXTS["never-bold"]:
            cells = {heading: column.assign(bold=0) for heading, column in cells.items()}
            notes = [note.partition(" Bold:")[0] for note in notes]
        yield _table(summary, name, cells, notes, **words)


def _columns_of_tables(summary: Summary) -> dict[str, Columns]:
    """Return the columns of each table of measures; a table without any is left out."""
    grid, stored, pool = summary.grid, summary.stored, summary.real_world
    tested = [name for name in stored if entry_of(name).kind != "votes"]
    others = [name for name in tested if name not in (*PICTURES, *REAL_WORLD)]

    def by_dataset(names: Iterable[str], condition: Condition = CLEAN) -> Columns:
        return {title_of(name): ((name,), condition) for name in names}

    def by_strength(datasets: Sequence[str]) -> Columns:
        return {str(e): (datasets, Condition("test", e)) for e in summary.strengths(*datasets)}

    pictures: Columns = {title: ((n,), CLEAN) for n, title in PICTURES.items() if n in stored}
    tables: dict[str, Columns] = {
        "table-1": pictures | ({POOLED: (pool, CLEAN)} if pool else {}),
        "real-world": by_dataset(pool),
        "extra": by_dataset(others),
    }
    if _has_tables(summary):  # the paper has none of them
        tables = {"accuracy": by_dataset(tested), "seconds": by_dataset(tested)}
    # Reports of earlier versions lack them.
    accepted = tested if summary.runs["accepted"].notna().any() else ()
    asked = summary.runs["dataset"][summary.runs["people_rank"].notna()].unique()
    are_crowds = any(entry_of(name).kind in CROWDS for name in stored)
    labels = stored if are_crowds and grid.train_rows else ()
    tables |= {
        "table-3": by_strength(summary.attacked_sets),
        "resolved": by_dataset(stored if grid.train_rows else (), Condition("train")),
        "calibration": by_dataset(tested),
        **{name: by_dataset(accepted) for name in ("accepted", "accepted-error", "acceptable")},
        **{name: by_dataset(labels, Condition("train")) for name in SHOWN if "labels" in name},
        **{name: by_dataset(asked) for name in SHOWN if name.startswith("people")},
        "audit": {
            f"{title_of(name)} {epsilon:g}": ((name,), Condition("test", audit=epsilon))
            for name, epsilons in grid.audit
            for epsilon in sorted(epsilons)
            if name in stored
        },
    }
    return tables | {f"attack-{name}": by_strength((name,)) for name in stored}


def _has_tables(summary: Summary) -> bool:
    """Return whether some results are on ordinary tables, whose means are compared."""
    return any(entry_of(name).kind in ("tables", *CROWDS) for name in summary.stored)


def _mean_cells(
    summary: Summary, columns: Mapping[str, pd.DataFrame], measure: str
) -> pd.DataFrame:
    """Return the mean over columns of datasets; methods that lack runs have none.

    A dataset counts once in the test for bold: its seeds are no independent evidence.
    """
    about = MEASURES.get(measure, SECONDS)
    wide = pd.DataFrame({h: c["value"].where(c["runs"] == c["asked"]) for h, c in columns.items()})
    cells = wide.mean(axis="columns", skipna=False).to_frame("value")
    is_bold = _bold(summary, wide.index, wide.dropna(), about.is_loss)
    return cells.assign(decimals=about.decimals, bold=is_bold, note="not all")


def _table(
    summary: Summary,
    name: str,
    columns: Mapping[str, pd.DataFrame],
    notes: Sequence[str] = (),
    head: str = "method",
    **words: str,
) -> Table:
    """Return a table of columns, which have cells for the same lines in the same order.

    Its title and note are in `report_texts.toml`; `words` fill them in.
    """
    kind = name if name in TEXTS["titles"] else name.partition("-")[0]  # attack-lost: attack
    groups = {line.label: int(line.group == "ensemble") for line in summary.lines}
    filled = {heading: pd.DataFrame(EMPTY | dict(c.items())) for heading, c in columns.items()}
    cells = pd.concat(filled, names=["column", "label"]).reset_index()
    cells["line"] = cells.groupby("column").cumcount()
    cells["group"] = [groups.get(label, 0) for label in cells["label"]]
    cells = cells.sort_values("line", kind="stable", ignore_index=True)[[*PLACE, *CELL]]
    words |= {"machines": ", ".join(summary.facts["machine"]), "most": f"{MOST_AUDITED:,}"}
    title, note = (TEXTS[part].get(kind, "").format(**words) for part in ("titles", "notes"))
    return Table(name, title, cells, tuple(filter(None, [*notes, note])), head)


def cells_of(
    summary: Summary, datasets: Sequence[str], condition: Condition, measure: str = "accuracy"
) -> pd.DataFrame:
    """Return one column of a table, by label: mean and deviation over runs, bold, what is missing.

    Runs of several datasets are pooled. Cells that lack runs are never bold.
    """
    about, planned = MEASURES.get(measure, SECONDS), summary.planned
    alike = (planned["part"] == condition.part) & (planned["condition"] == condition.name)
    chosen = planned[alike & planned["dataset"].isin(datasets)]
    wide = chosen.pivot(index="label", columns=["dataset", "seed"], values=measure)
    wide = about.scale * wide.reindex([line.label for line in summary.lines])
    runs, asked = wide.count(axis="columns"), len(datasets) * len(summary.grid.seeds)
    is_planned = wide.index.isin(chosen["label"])
    failed = wide.index.isin(chosen["label"][chosen["reason"] == "failed"])
    undefined = wide.index.isin(chosen["label"][chosen["reason"].isna()])
    notes = ["", "undefined", "not attacked" if condition.epsilon else "not asked for", "failed"]
    columns = {
        "value": wide.mean(axis="columns"),
        "std": wide.std(axis="columns", ddof=0).where(runs > 1),  # one run has no deviation
        "decimals": about.decimals,
        "bold": _bold(summary, wide.index, wide[runs == asked], about.is_loss),
        "runs": runs,
        "asked": np.where(is_planned, asked, 0),
        "note": np.select([runs > 0, undefined, ~is_planned, failed], notes, "missing"),
    }
    return pd.DataFrame(columns)


def _bold(
    summary: Summary, labels: pd.Index, scores: pd.DataFrame, is_loss: bool = False
) -> NDArray[np.int_]:
    """Return 1 for labels to print in bold, else 0; scores have a column for each run."""
    scores = 100 - scores if is_loss else scores
    groups = {line.label: line.group for line in summary.lines}
    if _has_tables(summary) and 1 in Counter(groups.values()).values():
        groups = dict.fromkeys(groups, "all")  # a method that is alone would always be the best
    by_label: dict[Any, Any] = scores.T.to_dict()
    if scores.shape[1] > 1 or not by_label:
        best = bold(by_label, groups)
    else:
        first: dict[Any, float] = scores.iloc[:, 0].to_dict()
        best = single_best(first, groups)
    return labels.isin(best).astype(int)


def _ood_tables(summary: Summary) -> Iterator[Table]:
    """Yield how far apart the entropies of test and OOD rows are, for each pair with runs."""
    seeds, ood = len(summary.grid.seeds), summary.ood
    for dataset, other in summary.grid.ood:
        frame = ood[(ood["dataset"] == dataset) & (ood["other"] == other)].set_index("label")
        if frame.empty:
            continue
        planned = {run.label for run in summary.grid.runs() if run.dataset == dataset}
        frame = frame.reindex([line.label for line in summary.lines if line.label in planned])
        columns = {}
        for measure, heading in OOD_HEADS.items():
            values, has_runs = frame[measure].astype(float), frame["seeds"].notna()
            runs = frame["seeds"].where(values.notna(), 0).astype(int)
            cells = pd.DataFrame({"value": values, "decimals": 4, "runs": runs, "asked": seeds})
            cells["bold"] = _bold(summary, values.index, values[runs == seeds].to_frame())
            cells["note"] = np.select([values.notna(), has_runs], ["", "undefined"], "missing")
            columns[heading] = cells
        rules = [RULES[name] for name in ("entropies", "bandwidth")]
        notes = [rule.format(seeds=seeds, gamma=frame["gamma"].max()) for rule in rules]
        words = {"dataset": title_of(dataset), "other": title_of(other)}
        is_published = (dataset, other) == PUBLISHED_PAIR
        name = "table-2" if is_published else f"ood-{dataset}-{other}"
        yield _table(summary, name, columns, notes, **words)


def _other_tables(summary: Summary) -> Iterator[Table]:
    """Yield the tables of datasets, time and missing runs."""
    runs, sizes, missing = summary.runs.groupby("dataset")["key"].nunique(), [], []
    for entry in map(entry_of, summary.grid.datasets):
        mean, single = summary.candidates.get(entry.name, (entry.candidates, math.nan))
        facts = entry.title, entry.rows, entry.features, entry.classes
        sizes.append((*facts, mean, 100 * single, runs.get(entry.name, 0)))
    for key, group in summary.missing.groupby(["dataset", "reason", "sentence"], sort=False):
        dataset, reason, sentence = map(str, key)
        methods, count = group["label"].unique(), len(group.drop_duplicates(["label", "seed"]))
        named = "all" if len(methods) == len(summary.lines) > 1 else ", ".join(methods)
        missing.append((title_of(dataset), count, named, reason, sentence))
    timing = [(*row, sum(row[2:]) / row[1]) for row in summary.timing.itertuples()]
    tables = {"datasets": sizes, "timing": timing, "missing": missing}
    for name, rows in tables.items():
        head, *_ = headings = TEXTS["heads"][name]
        frame = pd.DataFrame(rows, columns=headings).set_index(head)
        columns = {}
        for heading, column in frame.dropna(axis="columns", how="all").items():
            kind = "value" if pd.api.types.is_numeric_dtype(column) else "note"
            decimals = TEXTS["decimals"].get(name, {}).get(heading, 0)
            columns[str(heading)] = column.to_frame(kind).assign(decimals=decimals)
        if columns:
            yield _table(summary, name, columns, head=head)


@cache
def published_numbers() -> pd.DataFrame:
    """Return the paper's three tables, with tolerances, by (table, method, column)."""
    path = Path(__file__).with_name("paper_tables.csv")
    return pd.read_csv(path).set_index(["table", "method", "column"])


def compared_table(summary: Summary, table: Table) -> Table | None:
    """Return a table of the paper with the published numbers beside ours; None if it has none.

    A cell counts if all its runs are stored, with the paper's settings and datasets. The others
    are shown, and say why they do not count.
    """
    number = table.name[-1]
    paper = published_numbers().loc[int(number)]
    changed = {e.label for e in summary.grid.entries if e.method != type(e.method).paper()}
    methods = {
        line.label: line.method.title
        for line in summary.lines
        if line.method.title in paper.index
        and (line.label not in changed or line.label == line.method.title)
    }
    cells = table.cells.assign(bold=0, method=table.cells["label"].map(methods))
    cells = cells.dropna(subset="method").merge(paper, "left", on=["method", "column"])
    if cells.empty:
        return None
    reasons = cells["column"].map({c: _why_not(summary, number, c) for c in table.columns})
    reasons = reasons.mask(cells["label"].isin(changed), "other settings")
    cells["why_not"] = reasons.where(cells["published"].notna(), "")
    cells["difference"] = cells["value"] - cells["published"]
    cells["tolerance"] = cells["tolerance"].where(cells["why_not"] == "")
    # The published numbers are rounded: a rounding error of ours must not decide.
    agrees = (cells["difference"].abs() <= cells["tolerance"] + 1e-9).astype(float)
    counted = (cells["difference"] + cells["tolerance"]).notna() & (cells["runs"] == cells["asked"])
    cells["agrees"] = agrees.where(counted)
    agreement = f"{int(cells['agrees'].sum())} of {counted.sum()} cells agree with the paper"
    if others := (cells["published"].notna() & ~counted).sum():
        agreement += f"; {others} cannot be compared"
    pooled = [note for note in table.notes if note.startswith(POOLED)]
    notes = (f"{agreement}.", RULES[f"within-{number}"], *pooled)
    return Table(f"compare-{number}", f"Table {number} beside the paper's", cells, notes)


def _why_not(summary: Summary, number: str, column: str) -> str:
    """Return why a column cannot be compared with the paper, or nothing."""
    pooled = number == "3" or column == POOLED
    if pooled and (summary.attacked_sets if number == "3" else summary.real_world) != REAL_WORLD:
        return "other datasets"
    if not pooled and summary.grid.noise != InstanceDependent():
        return "other noise"
    return "bandwidth of all methods" if column == OOD_HEADS["mmd"] else ""


def _rank_tables(summary: Summary) -> Iterator[Table]:
    """Yield average ranks, if three methods or more have all runs on two datasets or more."""
    columns = {name: cells_of(summary, (name,), CLEAN) for name in summary.stored}
    seeds = len(summary.grid.seeds)
    complete = {name: c["value"] for name, c in columns.items() if (c["runs"] == seeds).all()}
    if len(complete) > 1 and len(summary.lines) > 2:
        average, distance, p = ranks_of(pd.DataFrame(complete).T)
        cells = pd.DataFrame({"value": average, "decimals": 2})
        words = {"level": f"{LEVEL:g}", "distance": f"{distance:.2f}", "p": f"{p:.2g}"}
        words |= {"datasets": _titles(complete), "count": str(len(complete))}
        yield _table(summary, "ranks", {"average rank": cells}, **words)


def ranks_of(scores: pd.DataFrame) -> tuple[pd.Series, float, float]:
    """Return average ranks, Nemenyi's critical difference, and the p-value of Friedman's test.

    Rows are datasets, columns are methods; higher is better, and ties share their ranks.
    """
    datasets, methods = scores.shape
    quantile = stats.studentized_range.ppf(1 - LEVEL, methods, math.inf) / math.sqrt(2)
    distance = float(quantile) * math.sqrt(methods * (methods + 1) / (6 * datasets))
    equal = bool(scores.nunique(axis="columns").eq(1).all())
    p = 1.0 if equal else float(stats.friedmanchisquare(*scores.to_numpy().T).pvalue)
    return scores.rank(axis="columns", ascending=False).mean(), distance, p


def title_of(dataset: str) -> str:
    """Return a dataset's name as people write it: "Lost"."""
    return entry_of(dataset).title


def _titles(datasets: Iterable[str]) -> str:
    return ", ".join(map(title_of, datasets))
