"""Objects are shown in few words, in consoles and notebooks."""

import inspect
import tracemalloc
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from nbclient import NotebookClient

import robustpll
from robustpll import (
    METHODS,
    Candidates,
    Comparison,
    ConformalSets,
    Dataset,
    Decision,
    Opinion,
    ParquetRows,
    PLLClassifier,
    RobustPLLClassifier,
    Votes,
    calibration_report,
    label_variants,
    ood_report,
    read_table,
    robustness_report,
)
from robustpll._display import Displayed, short
from robustpll.clean.judge import judge
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.evaluate.compare import Predictions, comparison_of
from robustpll.evaluate.reports import decision_report
from robustpll.labels.annotators import Crowd
from robustpll.measures.calibration import reliability, risk_coverage
from robustpll.measures.people import People

N, K = 100_000, 12
EVIL = "<script>alert('x')</script>"
NAMES = np.array([EVIL, *(f"class {i}" for i in range(1, K))], dtype=object)
RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.random((N, K)) < 0.3
MATRIX[:, 0] = True
LABELS = RANDOM.integers(K, size=N)
TABLE = pd.DataFrame(RANDOM.random((N, 30)), columns=[f"{EVIL} {i}" for i in range(30)])


def candidates() -> Candidates:
    return Candidates.of(MATRIX, classes=NAMES.astype(str))


def votes() -> Votes:
    names = ["ann", EVIL, "cem", "dan"]
    return Votes(pd.DataFrame(NAMES[RANDOM.integers(K, size=(N, 4))], columns=names))


def opinion(rows: int = N) -> Opinion:
    made = Opinion.of_evidence(RANDOM.random((rows, K)))
    return Opinion(made.belief, made.prior, made.uncertainty, NAMES)


def decision() -> Decision:
    reason = np.array([f"ambiguous: {EVIL} or b"] * N)
    return Decision(NAMES[LABELS], LABELS > 3, reason, 0.5)


def dataset() -> Dataset:
    facts: Any = {"source": EVIL, "notes": (EVIL,) * 1000, "candidates": candidates()}
    return Dataset("name", EVIL, TABLE.to_numpy(), NAMES, LABELS, **facts)


def comparison() -> Comparison:
    y = Candidates.of(NAMES[LABELS].astype(str))
    return comparison_of(y, Predictions(EVIL, LABELS), [Predictions("b", LABELS[::-1])])


def small_model() -> Any:
    X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([EVIL, "b", "c"], 20)
    return PLLClassifier("pl_knn").fit(X, y), X, y


def reports() -> list[Any]:
    model, X, y = small_model()
    settings: Any = {"steps": 2, "queries": 5, "twin_epochs": 1, "restarts": 1}
    return [
        robustness_report(model, X, y, tuple(np.linspace(0.01, 0.9, 30)), **settings),
        ood_report(model, X, 3 - 3 * X, X_train=X),
        calibration_report(model, X, y),
        decision_report(model.decide(X, coverage=1), y),
        ConformalSets.of(model, X, y),
        judge(X, Candidates.of(y), METHODS["pl_knn"](), device="cpu"),
    ]


def others() -> list[Any]:
    p = RANDOM.random(N)
    people = People(np.arange(N), np.ones((N, K), int), np.arange(N), MATRIX)
    return [
        reliability(p, LABELS > 5, bins=1000),
        risk_coverage(p, LABELS > 5),
        people,
        Predictions(EVIL, LABELS),
        label_variants([f"{EVIL}{i % 500:03d}{' ' * (i // 500)}" for i in range(1000)] * 3),
        Crowd.fit(LABELS.reshape(-1, 1000), K),
    ]


LARGE: dict[str, Callable[[], Any]] = {
    "Candidates": candidates,
    "Votes": votes,
    "Votes of lists": lambda: Votes([["cat", EVIL, "dog"]] * N),
    "Votes of an array": lambda: Votes(NAMES[RANDOM.integers(K, size=(N, 4))]),
    "Opinion": opinion,
    "Opinion of tensors": lambda: Opinion.of_evidence(torch.rand(N, K)),
    "Decision": decision,
    "Dataset": dataset,
    "Comparison": comparison,
}


def check(value: Any) -> None:
    """Both texts are short, and nothing in the table is taken for HTML."""
    assert isinstance(value, Displayed)
    assert len(repr(value)) < 2000
    page = value._repr_html_()
    assert len(page) < 10_000
    assert EVIL not in page
    assert "<table" in page
    assert type(value).__name__ in page


@pytest.mark.parametrize("name", LARGE)
def test_objects_of_many_rows_are_shown_in_few_words(name: str) -> None:
    check(LARGE[name]())


def test_reports_are_shown_in_few_words() -> None:
    for value in (*reports(), *others()):
        check(value)


@pytest.mark.parametrize("name", LARGE)
def test_rows_that_are_not_shown_cost_little(name: str) -> None:
    """A copy of all rows would take megabytes; one pass over a column of booleans does not."""
    value = LARGE[name]()
    (repr(value), value._repr_html_())  # loads pandas and jinja2
    tracemalloc.start()
    (repr(value), value._repr_html_())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_tables_and_files_are_shown_in_few_words(tmp_path: Path) -> None:
    frame = TABLE.assign(seen="cat|dog", x=0.5)
    frame.loc[::10, "x"] = np.inf  # 10,000 bad rows
    table = read_table(frame, candidates="seen", on_bad_rows="skip")
    check(table)
    assert "10000 faults" in repr(table)
    TABLE.iloc[:5].assign(seen="cat|dog").to_parquet(tmp_path / "few.parquet")
    names = [f"{EVIL} {i}" for i in range(1000)]
    check(ParquetRows(tmp_path / "few.parquet", candidates="seen", features=names))


def test_problems_show_shapes_alone() -> None:
    data = Dataset("name", "title", TABLE.to_numpy()[:500], NAMES, LABELS[:500])
    problem = Problem.of(data, Uniform(), seeds=(0, 1), device="cpu")
    assert "<Tensor of shape (2, 400)>" in repr(problem)
    assert len(repr(problem)) < 2000


def test_the_texts_tell_sizes() -> None:
    assert repr(votes()) == "Votes(100000 rows, 4 annotators)"
    assert repr(opinion()) == "Opinion(100000 rows, 12 classes)"
    assert repr(Opinion.of_evidence(np.ones((2, 3, 4)))) == "Opinion(2 x 3 rows, 4 classes)"
    assert repr(Votes(3)).startswith("Votes(answers=3")  # invalid, and not yet checked
    y = Candidates.of([{"a", "b"}, {"b", EVIL}])
    assert "&lt;script&gt;" in y._repr_html_()
    assert short("x" * 5000).count("x") < 200


def test_a_class_with_a_shape_is_shown_by_its_name() -> None:
    assert short(pd.DataFrame) == repr(pd.DataFrame)
    assert short(type("Net", (), {"shape": 5})).startswith("<class")


def test_estimators_keep_the_diagram_of_scikit_learn() -> None:
    model, *_ = small_model()
    for one in (model, PLLClassifier("proden"), RobustPLLClassifier()):
        page = one._repr_html_()
        assert "sk-top-container" in page
        assert EVIL not in page
        assert len(repr(one)) < 2000


def test_public_dataclasses_with_arrays_are_shown_in_few_words() -> None:
    """A new class with arrays or tables must not print them."""
    homes = ("evaluate.audit", "evaluate.compare", "evaluate.ood", "evaluate.reports")
    homes += ("measures.calibration", "measures.conformal", "measures.people", "labels.annotators")
    modules = [robustpll, *(import_module(f"robustpll.{home}") for home in homes)]
    kinds = [getattr(m, name) for m in modules for name in dir(m) if not name.startswith("_")]
    plain = [
        kind.__name__
        for kind in filter(inspect.isclass, kinds)
        if is_dataclass(kind) and kind.__module__.startswith("robustpll")
        if any("NDArray" in str(f.type) or "DataFrame" in str(f.type) for f in fields(kind))
        if kind.__repr__ is not Displayed.__repr__
    ]
    assert plain == []


NOTEBOOK = """\
import warnings
warnings.simplefilter("error")
import numpy as np
from robustpll import Candidates, PLLClassifier, Votes, compare
X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["<script>alert(1)</script>", "b", "c"], 20)
# %%
model = PLLClassifier("proden", random_state=0, verbose=True).fit(X, y)
# %%
model
# %%
model.predict_opinion(X)
# %%
Candidates.of(y)
# %%
Votes([["cat", "dog"], ["dog", None]])
# %%
compare(X, y, method="proden", random_state=0, verbose=True)
"""


@pytest.mark.slow
def test_a_notebook_shows_bars_and_tables_without_warnings(tmp_path: Path) -> None:
    """In a kernel of Jupyter, without ipywidgets."""
    assert find_spec("ipywidgets") is None, "this test is for notebooks without widgets"
    cells = [nbformat.v4.new_code_cell(code) for code in NOTEBOOK.split("# %%\n")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    kinds = {output.output_type for cell in outputs for output in cell}
    assert kinds <= {"display_data", "execute_result"}  # nothing is printed, not even warnings
    first, *shown = outputs[1:]
    bar, epochs = first[0].data, PLLClassifier("proden").resolved_method().epochs
    assert f'<progress value="{epochs}" max="{epochs}">' in bar["text/html"]
    assert bar["text/plain"].startswith(f"Proden: epoch {epochs} of {epochs}, loss ")
    for cell in shown:
        assert "<table" in cell[-1].data["text/html"]
        assert "<script>alert" not in cell[-1].data["text/html"]
    assert "<progress" in shown[-1][0].data["text/html"]  # of `compare`
