"""Docstrings of the library as Markdown, and the page on the API that is made of them."""

import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import robustpll
from robustpll import METHODS, bench, callbacks, plots

API = {
    "Learn": ("RobustPLLClassifier", "PLLClassifier", "METHODS", "load", "distributed"),
    "Candidates, opinions, decisions": ("Candidates", "Votes", "Opinion", "Decision"),
    "Answers": ("Not", "Sure", "Unsure", "label_variants"),
    "Data": ("load_dataset", "Dataset", "read_table", "Table", "ParquetRows"),
    "Trust": ("calibration_report", "ConformalSets", "missing_truth_scores", "ood_report"),
    "Comparison with baselines": ("compare", "Comparison"),
    "Robustness": ("robustness_report", "PGD", "AutoPGD", "Square"),
    "Errors": ("RobustPLLError", "InputError", "ModelFileError"),
}
WITH_METHODS = ("RobustPLLClassifier", "PLLClassifier", "Candidates", "Votes", "Opinion")
WITH_METHODS += ("ConformalSets", "Dataset", "Grid")
LISTS = ("Parameters", "Attributes", "Returns", "Raises")


def api_page() -> str:
    listed = [name for names in API.values() for name in names]
    if sorted([*listed, "__version__"]) != sorted(robustpll.__all__):
        odd = sorted({*listed, "__version__"} ^ set(robustpll.__all__))
        raise SystemExit(f"docs/docstrings.py: API and robustpll.__all__ differ in {odd}.")
    lines = ["# API", "", "All that `import robustpll` offers, and the benchmark.", ""]
    for section, names in API.items():
        lines += [f"## {section}", ""]
        for name in names:
            lines += api_entry(name, getattr(robustpll, name))
    modules = {"Plots": plots, "Callbacks and checkpoints": callbacks, "Benchmark": bench}
    for section, module in modules.items():
        lines += [f"## {section}", "", f"`from {module.__name__} import ...`", ""]
        for name in module.__all__:
            lines += api_entry(name, getattr(module, name))
    return "\n".join(lines)


def api_entry(name: str, thing: Any) -> list[str]:
    lines = [f"### {name}", ""]
    if name == "METHODS":
        known = ", ".join(f"[{key}](methods/{key}.md)" for key in METHODS)
        return [*lines, f"The classes of all methods, by name: {known}.", ""]
    is_error = isinstance(thing, type) and issubclass(thing, Exception)
    lines += [*([] if is_error else signature(name, thing)), "", *described(thing), ""]
    if name in WITH_METHODS:
        for attribute, method in methods_of(thing):
            lines += [f"#### {name}.{attribute}", "", *signature(attribute, method), ""]
            lines += [*described(method), ""]
    return lines


def described(thing: Any) -> list[str]:
    """What a class or function says of itself."""
    head, *sections = re.split(r"^(\w+)\n-{3,}\n", inspect.getdoc(thing) or "", flags=re.M)
    lines = list(prose(head))
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        lines += ["", f"**{title}**", "", *(entries if title in LISTS else prose)(body)]
    return lines


def prose(text: str) -> Iterator[str]:
    """Paragraphs; a session of Python ends at an empty line, and is fenced."""
    fenced = False
    for line in text.strip().splitlines():
        starts = not fenced and line.startswith(">>>")
        ends = fenced and not line
        if starts:
            yield ""
        if starts or ends:
            yield "```pycon" if starts else "```"
            fenced = starts
        quotes = not fenced and line.startswith(">")
        yield f"\\{line}" if quotes else line
    if fenced:
        yield "```"


def entries(text: str) -> Iterator[str]:
    """A list of `name : kind` lines, each with what follows indented."""
    for line in text.strip().splitlines():
        if line and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            yield f"- **{name}**" + (f" (`{kind}`):" if kind else ":")
        else:
            yield line


def signature(name: str, thing: Any) -> list[str]:
    """How it is called; annotations would make it hard to read."""
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    shown = [*map(str, plain)]
    keyword = [p.kind is inspect.Parameter.KEYWORD_ONLY for p in plain]
    if True in keyword and not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in plain):
        shown.insert(keyword.index(True), "*")
    one_line = f"{name}({', '.join(shown)})"
    lines = [one_line] if len(one_line) <= 88 else [f"{name}(", *(f"    {s}," for s in shown), ")"]
    return ["```python", *lines, "```"]


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of the library offers besides its constructor, in the order of the source."""
    seen = set()
    for base in kind.__mro__:
        for name, member in vars(base).items():
            ours = base.__module__.startswith("robustpll") and not name.startswith("_")
            if ours and name not in seen and isinstance(member, FunctionType | classmethod):
                seen.add(name)
                yield name, getattr(kind, name)
