"""Makes the pages that come from code and stored results, while mkdocs builds the site.

Pages of methods, the API and executed notebooks are generated; pages are filled with their tables.
Nothing of that is committed. `python benchmarks/pages.py` writes the tables of the README.
"""

import posixpath
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from robustpll.methods import METHODS, PUBLISHED
from robustpll.methods.base import Method

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path += [str(ROOT / "benchmarks"), str(DOCS)]

from docstrings import api_page, described  # noqa: E402
from notebooks import notebook_page  # noqa: E402
from pages import TABLE_OF, best, filled, report_origin, spreads, table, values  # noqa: E402

REPORTS = ("paper", "sound")
FORMULAS = ("formulas.js", "mathjax-tex-svg.js")

# The page of a method


def method_page(method: type[Method]) -> str:
    has_views, in_paper = bool(getattr(method, "views", ())), method in PUBLISHED
    kind = {"classical": "without a network", "network": "a network", "ensemble": "an ensemble"}
    has = "reports uncertainty" if method.uncertain else "does not report uncertainty"
    page = "how-to/pictures.md#networks-and-views" if has_views else "which-method.md"
    further = [f"RobustPll's paper does not compare this method. [How to use it](../{page})."]
    lines = [
        f"# {method.title}",
        "",
        *(f"> {source}." for source in method.citation.split("; ")),
        "",
        f'`PLLClassifier("{method.name}")`, {kind[method.family]}. It {has}.',
        "",
        *described(method),
        "",
        f"## {'Parameters, and the published values' if in_paper else 'Fields'}",
        "",
        *field_lines(method),
        "",
        *(report_lines(method) if in_paper else further),
        "",
        *audit_lines(method),
    ]
    return "\n".join(lines)


def field_lines(method: type[Method]) -> list[str]:
    plain, paper, name = method(), method.paper(), method.__name__
    if method not in PUBLISHED:  # `.paper()` says nothing: the paper has no settings of it
        values = [
            [f"`{field.name}`", f"`{getattr(plain, field.name)!r}`"] for field in fields(plain)
        ]
        return table(["field", f"`{name}()`"], values)
    rows = []
    for field in fields(method):  # type: ignore[arg-type]
        ours, theirs = (f"`{getattr(one, field.name)!r}`" for one in (plain, paper))
        rows.append([f"`{field.name}`", ours, theirs if ours == theirs else f"**{theirs}**"])
    same = f"`{name}.paper()` equals the plain constructor."
    lines = table(["field", f"`{name}()`", f"`{name}.paper()`"], rows)
    differ = (
        "Bold: values that differ. The preset made [the table of RobustPll's paper]"
        "(../benchmarks/paper.md). The method's own publication may differ from it."
    )
    return [*lines, "", same if plain == paper else differ]


def bold_spreads(report: str, name: str) -> Any:
    """Return "mean ± std" for each label and column, the best ones in bold."""
    texts = spreads(report, name)
    return texts.where(values(report, name, "bold") != 1, "**" + texts + "**")


def report_lines(method: type[Method]) -> list[str]:
    """Return accuracy, separation from letters, the published attack and the cost."""
    title, rows = method.title, []
    published = values("paper", "compare-1", "published").loc[title]
    for dataset, name in TABLE_OF.items():
        top = best(dataset, ensembles=method.family == "ensemble")
        known = str(published[dataset]) if dataset in published else ""
        ours, plain = (bold_spreads(report, name).loc[title, dataset] for report in REPORTS)
        accuracy = values("paper", name).loc[top, dataset]
        rows.append([dataset, ours, known, f"{top} {accuracy:.1f}", plain])
    head = ["", "accuracy", "published", "best of its group", "plain constructor"]
    names = ("CDF area", "KS", "MMD")
    area, ks, mmd = values("paper", "table-2").loc[title, [*names]].map("{:.2f}".format)
    timing = values("paper", "timing")
    seconds, total = timing["seconds per run"][title], timing["training"] + timing["examining"]
    share = 100 * total[title] / total.sum()
    lines = [
        "## Results",
        "",
        f"With `{method.__name__}.paper()`, in percent: mean ± standard deviation over 5 seeds. "
        "Bold: the best of its group (ensembles, others), and methods that a paired t-test does "
        "not distinguish from it. The last column is the plain constructor.",
        "",
        *table(head, rows),
        "",
        "Distance between the entropies of MNIST's test rows and of NotMNIST (negative: letters "
        f"have lower entropy): area {area}, KS {ks}, MMD {mmd}.",
        "",
    ]
    attacked = values("paper", "table-3")
    if title in attacked.index:
        accuracy = attacked.loc[title].dropna()
        lines += [
            "Accuracy on the three real-world sets under the published attack, which is weak "
            "([robustness](../benchmarks/robustness.md)):",
            "",
            *table(["epsilon", *accuracy.index], [["accuracy", *accuracy.map("{:.1f}".format)]]),
            "",
        ]
    return [
        *lines,
        f"A run takes {seconds:.2f} seconds on average, {share:.1f} % of the whole sweep. Runs are "
        "trained together; a run's seconds are its share of the bundle's.",
        "",
        f"{report_origin('paper')} All methods: [which method](../which-method.md), "
        "[results](../benchmarks/results.md).",
    ]


def audit_lines(method: type[Method]) -> Iterator[str]:
    accuracies = values("audit", "audit")
    if method.title not in accuracies.index:  # a new method has no stored results
        return
    worst = bold_spreads("audit", "audit").loc[method.title]
    worst = worst[accuracies.loc[method.title].notna()].to_dict()
    if worst:
        yield "## Worst case"
        yield ""
        yield (
            "Accuracy of the plain constructor under [an audit](../how-to/robustness.md), by "
            "dataset and largest change of each scaled feature:"
        )
        yield ""
        yield from table([*worst], [[*worst.values()]])
        yield ""
        yield report_origin("audit")


# What mkdocs calls


def on_config(config: Any) -> None:
    """Add the pages of the methods to the navigation."""
    (methods,) = (entry["Methods"] for entry in config.nav if "Methods" in entry)
    methods += [{kind.title: f"methods/{kind.name}.md"} for kind in METHODS.values()]


def on_files(files: Any, config: Any) -> None:
    from mkdocs.structure.files import File

    pages: dict[str, str | bytes] = {"api.md": api_page(), "changelog.md": changelog_page()}
    pages |= {f"methods/{kind.name}.md": method_page(kind) for kind in METHODS.values()}
    for path in sorted(DOCS.glob("tutorials/*.ipynb")):
        pages[f"tutorials/{path.stem}.md"], pictures = notebook_page(path)
        pages |= {f"tutorials/{name}": picture for name, picture in pictures.items()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    sources = {page.relative_to(DOCS).as_posix(): page.read_text() for page in DOCS.rglob("*.md")}
    sources["changelog.md"] = changelog_page()
    for path in sorted({path for page in sources for _, path in outside(sources[page], page)}):
        files.append(File.generated(config, copied_to(path), abs_src_path=str(in_tree(path))))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill tables; links out of docs/ lead to copies, titles of methods to their pages."""
    here = page.file.src_uri
    markdown = filled(markdown)
    for link, path in outside(markdown, here):
        copy = posixpath.relpath(copied_to(path), posixpath.dirname(here))
        markdown = re.sub(rf"\]\({re.escape(link)}(?=[)#])", f"]({copy}", markdown)
    if here == "which-method.md":
        for kind in METHODS.values():
            linked = f"| [{kind.title}](methods/{kind.name}.md) |"
            markdown = markdown.replace(f"\n| {kind.title} |", f"\n{linked}")
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Typeset formulas, by MathJax, on the pages that have some."""
    if 'class="arithmatex"' not in output:
        return output
    folder = posixpath.relpath("assets", posixpath.dirname(page.file.dest_uri))
    scripts = "".join(f'<script src="{folder}/{name}"></script>' for name in FORMULAS)
    return output.replace("</body>", f"{scripts}</body>")


def on_post_build(config: Any) -> None:
    """Refuse a page that loads anything from elsewhere: the site is read offline."""
    loaded = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s>]+")
    for page in Path(config.site_dir).rglob("*.html"):
        if match := loaded.search(page.read_text(encoding="utf-8")):
            raise SystemExit(f"{page} loads something from elsewhere: {match[0]}")


def changelog_page() -> str:
    """Return the changelog with links that hold in docs/."""
    text = (ROOT / "CHANGELOG.md").read_text()
    return re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")


def outside(markdown: str, page: str) -> Iterator[tuple[str, str]]:
    """Yield the links of a page in docs/ to files outside of it, and their paths."""
    for link in dict.fromkeys(re.findall(r"\]\((\.\./[^)#]+)", markdown)):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
        if not path.startswith("docs/"):
            yield link, path


def in_tree(path: str) -> Path:
    target = ROOT / path
    return target / "index.html" if target.is_dir() else target


def copied_to(path: str) -> str:
    """Return where a file is copied to; files other than pages are shown as text."""
    plain = str(in_tree(path).relative_to(ROOT))
    return f"files/{plain}" if plain.endswith(".html") else f"files/{plain}.txt"
