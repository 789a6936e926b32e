"""Makes the pages that come from code and stored results, while mkdocs builds the site.

One page for each method and the API are made anew in every build, so they are in no commit. Tables
in which-method.md stand between markers, for those who read it without the site:

    python docs/generate.py

writes them, and a test checks that they are current.
"""

import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from robustpll.bench.summary import Summary, read_summary
from robustpll.bench.tables import Table, all_tables
from robustpll.methods import METHODS, PUBLISHED
from robustpll.methods.base import Method

ROOT = Path(__file__).parents[1]
DOCS, REPORT = ROOT / "docs", ROOT / "reports" / "paper"
SOUND, AUDIT = ROOT / "reports" / "sound", ROOT / "reports" / "audit"  # of plain constructors
sys.path += [str(ROOT / "benchmarks"), str(DOCS)]

from docstrings import api_page, described  # noqa: E402
from pages import rewrite, table  # noqa: E402

Cells = dict[tuple[str, str], dict[str, Any]]  # by method's title and column

PICTURES = ("MNIST", "FMNIST", "KMNIST", "NotMNIST")
REAL_WORLD = ("BirdSong", "Lost", "MSRCv2")
MANY_CLASSES = ("FG-NET", "Italian")
DATASETS = dict.fromkeys(PICTURES, "table-1")
DATASETS |= dict.fromkeys(REAL_WORLD, "real-world")
DATASETS |= dict.fromkeys(MANY_CLASSES, "extra")
FURTHER_LINES = ["It is not of the paper: what it is worth is told in [beyond](../beyond.md)."]
FULL_NAMES = {"FMNIST": "Fashion-MNIST", "KMNIST": "Kuzushiji-MNIST", "NotMNIST": "NotMNIST small"}


def main() -> None:
    rewrite(DOCS / "which-method.md", parts())


# What the report holds.


@cache
def summary(report: Path = REPORT) -> Summary:
    return read_summary(report / "runs.parquet")


@cache
def tables(report: Path = REPORT) -> dict[str, Table]:
    return all_tables(summary(report))


@cache
def cells(name: str, report: Path = REPORT) -> Cells:
    """The cells of a table of a report, by label and column."""
    rows = tables(report)[name].cells.to_dict("records")
    return {(row["label"], row["column"]): row for row in rows}


def value(name: str, method: str, column: str, report: Path = REPORT) -> float:
    return float(cells(name, report)[method, column]["value"])


def spread(cell: dict[str, Any]) -> str:
    shown = f"{cell['value']:.1f} ± {cell['std']:.1f}"
    return f"**{shown}**" if cell["bold"] else shown


def group(ensembles: bool) -> list[str]:
    """Titles of the published ensembles, or of the others."""
    return [each.title for each in PUBLISHED if (each.family == "ensemble") == ensembles]


def best(dataset: str, ensembles: bool) -> str:
    """The title of the best method of a group."""
    return max(group(ensembles), key=lambda title: value(DATASETS[dataset], title, dataset))


def means(title: str) -> tuple[float, float, float]:
    """Accuracy on pictures, on real-world sets, and on these by the plain constructor."""
    return (
        fmean(value("table-1", title, each) for each in PICTURES),
        fmean(value("real-world", title, each) for each in REAL_WORLD),
        fmean(value("real-world", title, each, SOUND) for each in REAL_WORLD),
    )


def made_by() -> str:
    facts = summary().facts
    machine, torch, date = ("; ".join(facts[name]) for name in ("machine", "torch", "date"))
    return f"Machines: {machine}. torch {torch}. {date}."


# The page on which method to choose.


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name."""
    return {
        "short": list(in_short()),
        "datasets": dataset_table(),
        "methods": method_table(),
        "origin": [made_by()],
    }


def in_short() -> Iterator[str]:
    single, ensembles = group(ensembles=False), group(ensembles=True)
    for column, kind in enumerate(("pictures", "real-world sets", "real-world sets, as it comes")):
        names = [max(these, key=lambda t: means(t)[column]) for these in (single, ensembles)]
        first, second = (f"{name} ({means(name)[column]:.1f})" for name in names)
        ours = (
            "" if names[0] == "RobustPll" else f" RobustPll has {means('RobustPll')[column]:.1f}."
        )
        yield f"- Best on {kind}: {first}; among ensembles {second}.{ours}"
    for dataset in MANY_CLASSES:
        first, classes = best(dataset, ensembles=False), int(value("datasets", dataset, "classes"))
        ours, other = (value("extra", each, dataset) for each in (first, "RobustPll"))
        found = f"{first} ({ours:.1f}). RobustPll has {other:.1f}."
        yield f"- Best with {classes} classes ({dataset}): {found}"
    for many, one in (("Proden+Ens", "Proden"), ("RobustPll+Ens", "RobustPll")):
        ahead = sum(value(DATASETS[d], many, d) > value(DATASETS[d], one, d) for d in DATASETS)
        yield f"- {many} is ahead of {one} on {ahead} of {len(DATASETS)} datasets."
    classical = [each.title for each in PUBLISHED if each.family == "classical"]
    first = max(classical, key=lambda t: means(t)[0] + means(t)[1])
    pictures, tables, _ = means(first)
    found = f"{first} ({pictures:.1f} on pictures, {tables:.1f} on real-world sets)."
    yield f"- Best without a network: {found}"
    apart = [max(these, key=lambda t: value("table-2", t, "KS")) for these in (single, ensembles)]
    first, second = (f"{name} ({value('table-2', name, 'KS'):.2f})" for name in apart)
    ours = value("table-2", "RobustPll", "KS")
    yield (
        f"- Entropies of known and unknown rows are furthest apart (KS) for {first}; among "
        f"ensembles for {second}. RobustPll has {ours:.2f}."
    )
    seconds = {each: value("timing", each, "seconds per run") for each in single + ensembles}
    least, most = min(seconds, key=seconds.__getitem__), max(seconds, key=seconds.__getitem__)
    yield (
        f"- A run takes from {seconds[least]:.2f} s ({least}) to {seconds[most]:.1f} s ({most}); "
        f"Proden {seconds['Proden']:.1f} s, RobustPll {seconds['RobustPll']:.1f} s."
    )


def dataset_table() -> list[str]:
    head = [
        "",
        "rows",
        "classes",
        "candidates",
        "best",
        "not told from it",
        "best ensemble",
        "RobustPll",
    ]
    return table(head, (dataset_row(each) for each in DATASETS))


def dataset_row(dataset: str) -> list[str]:
    about, found = FULL_NAMES.get(dataset, dataset), cells(DATASETS[dataset])
    rows, classes, candidates = (
        value("datasets", about, each) for each in ("rows", "classes", "candidates on average")
    )
    first, second = best(dataset, ensembles=False), best(dataset, ensembles=True)
    alike = [
        each for each in group(ensembles=False) if each != first and found[each, dataset]["bold"]
    ]
    return [
        dataset,
        f"{rows:,.0f}",
        f"{classes:.0f}",
        f"{candidates:.1f}",
        f"{first} {value(DATASETS[dataset], first, dataset):.1f}",
        ", ".join(alike),
        f"{second} {value(DATASETS[dataset], second, dataset):.1f}",
        f"{value(DATASETS[dataset], 'RobustPll', dataset):.1f}",
    ]


def method_table() -> list[str]:
    head = [
        "method",
        "kind",
        "pictures",
        "real-world",
        "real-world, as it comes",
        "KS of entropies",
        "uncertainty of its own",
        "seconds per run",
    ]
    rows = (
        [
            each.title,
            each.family,
            *(f"{mean:.1f}" for mean in means(each.title)),
            f"{value('table-2', each.title, 'KS'):.2f}",
            "yes" if each.uncertain else "",
            f"{value('timing', each.title, 'seconds per run'):.2f}",
        ]
        for each in PUBLISHED
    )
    return table(head, rows)


# The page of a method.


def method_page(method: type[Method]) -> str:
    kind = {"classical": "without a network", "network": "a network", "ensemble": "an ensemble"}
    say = "says" if method.uncertain else "has no way to say"
    lines = [
        f"# {method.title}",
        "",
        *(f"> {each}." for each in method.citation.split("; ")),
        "",
        f'`PLLClassifier("{method.name}")`, {kind[method.family]}. It {say} "I do not know" as '
        'something else than "either of these".',
        "",
        *described(method),
        "",
        "## Fields, and what the paper's tables were made with",
        "",
        *field_lines(method),
        "",
        *(report_lines(method) if method in PUBLISHED else FURTHER_LINES),
        "",
        *audited_lines(method),
    ]
    return "\n".join(lines)


def report_lines(method: type[Method]) -> list[str]:
    return [
        "## Results",
        "",
        f"With `{method.__name__}.paper()`, in percent: mean ± standard deviation over 5 seeds. "
        "Bold: the best of its group (ensembles, others), or not told from it by a paired t-test. "
        "The last column is the plain constructor.",
        "",
        *result_lines(method),
        "",
        *beyond_accuracy(method),
        "## Cost",
        "",
        *cost_lines(method),
        "",
        f"{made_by()} All methods side by side: [which method](../which-method.md), "
        "[results](../results.md).",
    ]


def field_lines(method: type[Method]) -> list[str]:
    plain, paper = method(), method.paper()
    rows = []
    for each in fields(method):  # type: ignore[arg-type]
        ours, theirs = (f"`{getattr(one, each.name)!r}`" for one in (plain, paper))
        rows.append([f"`{each.name}`", ours, theirs if ours == theirs else f"**{theirs}**"])
    name = method.__name__
    lines = table(["field", f"`{name}()`", f"`{name}.paper()`"], rows)
    if plain == paper:
        return [*lines, "", f"`{name}.paper()` is the plain constructor."]
    return [*lines, "", "Bold: what differs."]


def result_lines(method: type[Method]) -> list[str]:
    rows = []
    for dataset, name in DATASETS.items():
        first = best(dataset, method.family == "ensemble")
        compared = cells("compare-1").get((method.title, dataset))
        published = "" if compared is None else str(compared["published"])
        rows.append(
            [
                dataset,
                spread(cells(name)[method.title, dataset]),
                published,
                f"{first} {value(name, first, dataset):.1f}",
                spread(cells(name, SOUND)[method.title, dataset]),
            ]
        )
    return table(["", "accuracy", "published", "best of its group", "plain constructor"], rows)


def beyond_accuracy(method: type[Method]) -> Iterator[str]:
    apart = [f"{value('table-2', method.title, each):.2f}" for each in ("CDF area", "KS", "MMD")]
    yield (
        "How far apart the entropies of MNIST's test rows and of NotMNIST are (negative is the "
        f"wrong way round): area {apart[0]}, KS {apart[1]}, MMD {apart[2]}."
    )
    yield ""
    if (method.title, "0.0") in cells("table-3"):
        strengths = [column for title, column in cells("table-3") if title == method.title]
        yield (
            "Accuracy on the three real-world sets under the published attack, which is weak "
            "([robustness](../robustness.md)):"
        )
        yield ""
        shown = [f"{value('table-3', method.title, each):.1f}" for each in strengths]
        yield from table(["epsilon", *strengths], [["accuracy", *shown]])
        yield ""


def audited_lines(method: type[Method]) -> Iterator[str]:
    found = {
        column: spread(cell)
        for (title, column), cell in cells("audit", AUDIT).items()
        if title == method.title and not math.isnan(cell["value"])
    }
    if found:
        yield "## Worst case"
        yield ""
        yield (
            "What [an audit](../robustness.md) leaves of the plain constructor's accuracy, by "
            "dataset and by how far each scaled feature may move (`reports/audit`):"
        )
        yield ""
        yield from table([*found], [[*found.values()]])
        yield ""


def cost_lines(method: type[Method]) -> list[str]:
    runs, each, training, examining, share = (
        value("timing", method.title, column)
        for column in ("runs", "seconds per run", "training", "examining", "share in %")
    )
    return [
        f"{each:.2f} seconds a run, on average over {runs:.0f} runs: {training:,.1f} s of "
        f"training, {examining:,.1f} s of predicting, attacks included; {share:.1f} % of "
        "all. "
        "Runs are trained together; a run's seconds are its share of those of its bundle."
    ]


# What mkdocs calls.


def on_config(config: Any) -> None:
    """Pages that this script makes take their places."""
    titles = [{each.title: f"methods/{each.name}.md"} for each in METHODS.values()]
    config.nav.insert(2, {"Methods": titles})


def on_files(files: Any, config: Any) -> None:
    from mkdocs.structure.files import File

    made = {f"methods/{each.name}.md": method_page(each) for each in METHODS.values()}
    for path, text in {**made, "api.md": api_page()}.items():
        files.append(File.generated(config, path, content=text))
    for path in sorted({path for page in DOCS.glob("*.md") for path in outside(page.read_text())}):
        file = File.generated(config, copied_to(path), abs_src_path=str(in_tree(path)))
        files.append(file)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to copies on the site; titles of methods lead to their pages."""
    at_root = "/" not in page.file.src_uri
    for path in outside(markdown) if at_root else ():
        markdown = markdown.replace(f"](../{path})", f"]({copied_to(path)})")
    if page.file.src_uri == "which-method.md":
        for each in METHODS.values():
            linked = f"| [{each.title}](methods/{each.name}.md) |"
            markdown = markdown.replace(f"\n| {each.title} |", f"\n{linked}")
    return markdown


def on_post_build(config: Any) -> None:
    """A page that loads anything from elsewhere is refused: the site is read offline."""
    loaded = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s>]+")
    for page in Path(config.site_dir).rglob("*.html"):
        if found := loaded.search(page.read_text(encoding="utf-8")):
            raise SystemExit(f"{page} loads something from elsewhere: {found[0]}")


def outside(markdown: str) -> Iterable[str]:
    """Paths, from the root, of files outside docs/ that a page links to."""
    return dict.fromkeys(re.findall(r"\]\(\.\./([^)#]+)\)", markdown))


def in_tree(path: str) -> Path:
    found = ROOT / path
    return found / "index.html" if found.is_dir() else found


def copied_to(path: str) -> str:
    """Text of other kinds than pages is shown as text."""
    plain = str(in_tree(path).relative_to(ROOT))
    return f"files/{plain}" if plain.endswith(".html") else f"files/{plain}.txt"


if __name__ == "__main__":
    main()
