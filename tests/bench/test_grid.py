"""What a grid asks for, and the keys it is stored by."""

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from torch import nn

from robustpll import InputError
from robustpll.bench.grid import GRIDS, Condition, Grid, GridMethod, Run, runs_here
from robustpll.datasets.catalog import entry_of
from robustpll.datasets.noise import (
    NOISES,
    Annotators,
    ClassDependent,
    Flip,
    Independent,
    InstanceDependent,
    Uniform,
)
from robustpll.methods import METHODS, PUBLISHED, Proden, ProdenEdl, ProdenEns, RobustPll

PAPER = Grid.named("paper")
GRID_FILES = sorted((Path(__file__).parents[2] / "benchmarks" / "grids").glob("*.toml"))
MINE = """
methods = ["proden", {name = "robust_pll", label = "no KL", kl_ceiling = 0}, "pl_knn"]
datasets = ["digits", "lost"]
seeds = [3, 1]
noise = {name = "class-dependent", share = 1.0}
epsilons = [0, 0.1]
epochs = 7
attacked = ["lost"]
train_rows = true
audit = {lost = [0.05, 0.02]}
"""
PARTS = """
methods = [
    "proden",
    {name = "robust_pll", kl_ceiling = 0.1, datasets = ["digits"]},
    {name = "robust_pll", datasets = ["lost", "synthetic"]},
]
datasets = ["digits", "lost", "synthetic"]
seeds = 1
"""


def read(folder: Path, text: str) -> Grid:
    path = folder / "mine.toml"
    path.write_text(text)
    return Grid.read(path)


def test_missing_keys_come_from_the_grid_that_like_names(tmp_path: Path) -> None:
    mine, quick = read(tmp_path, 'like = "quick"\ndatasets = ["synthetic"]'), Grid.named("quick")
    assert (mine.name, mine.datasets) == ("mine", ("synthetic",))
    assert (mine.entries, mine.seeds, mine.noise) == (quick.entries, quick.seeds, quick.noise)
    with pytest.raises(InputError, match="There is no grid 'papers'; the names are paper"):
        read(tmp_path, 'like = "papers"')


def test_a_grid_like_another_has_what_concerns_its_own_datasets(tmp_path: Path) -> None:
    assert read(tmp_path, 'like = "paper"\ndatasets = ["lost", "mnist"]').ood == PAPER.ood
    assert read(tmp_path, 'like = "paper"\ndatasets = ["lost"]').ood == ()
    assert [name for name, _ in read(tmp_path, 'like = "audit"\ndatasets = ["lost"]').audit] == [
        "lost"
    ]
    for own in ('ood = [["mnist", "digits"]]', "audit = {mnist = [0.1]}"):  # they are asked for
        with pytest.raises(InputError, match="must name datasets of the grid; got mnist"):
            read(tmp_path, f'like = "paper"\ndatasets = ["lost"]\n{own}')


def names_of(run: Run) -> list[str]:
    return [condition.name for condition in sorted(run.conditions, key=lambda one: one.order)]


def test_the_paper_grid_is_the_published_one_and_sound_differs_in_methods_alone() -> None:
    grid, sound = Grid.named("paper"), Grid.named("sound")
    assert [entry.method for entry in grid.entries] == [kind.paper() for kind in PUBLISHED]
    assert [entry.method for entry in sound.entries] == [kind() for kind in PUBLISHED]
    assert replace(sound, name="paper", entries=grid.entries) == grid
    by_run = {(run.label, run.dataset, run.seed): run for run in grid.runs()}
    assert len(by_run) == 19 * 12 * 5
    mnist, lost = by_run["Proden", "mnist", 0], by_run["Proden", "lost", 4]
    assert (mnist.noise, lost.noise) == (InstanceDependent(), None)
    assert names_of(mnist) == ["clean", "ood notmnist"]
    assert names_of(lost) == ["clean", *(f"pgd 0.{tenth}" for tenth in (1, 2, 3, 4))]
    unattacked = {run.label for run in grid.runs() if run.conditions == (Condition("test"),)}
    assert {"PlKnn", "PlSvm", "Ipal", "PlEcoc", "DstPll"} <= unattacked


def test_a_toml_file_says_it_all(tmp_path: Path) -> None:
    grid = read(tmp_path, MINE)
    assert grid.entries[:2] == (
        GridMethod("Proden", Proden(epochs=7)),
        GridMethod("no KL", RobustPll(epochs=7, kl_ceiling=0)),
    )
    assert (grid.name, grid.seeds, grid.epsilons) == ("mine", (3, 1), (0.1,))
    assert grid.noise == ClassDependent(share=1.0)
    assert grid.audit == (("lost", (0.05, 0.02)),)
    names = {(run.label, run.dataset): names_of(run) for run in grid.runs()}
    worst = ["audit 0.02", "audit 0.05"]
    assert names["Proden", "lost"] == ["clean", "clean", "pgd 0.1", *worst]
    assert names["PlKnn", "lost"] == ["clean", "clean", *worst]
    assert names["Proden", "digits"] == ["clean", "clean"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("methods = ['prodne']", "prodne"),
        ("methods = [3]", "must be a name"),
        (
            "methods = [{name = 'proden', epoch = 3}]",
            r"proden has no epoch; it has .*epochs",
        ),
        ("method = ['proden']", "A grid has no key method; it has name, methods"),
        ("epsilons = [0.1, 0.10000001]", "must differ, epsilons in six digits"),
        ("methods = ['proden', 'proden']", "must differ"),
        ("methods = 'proden'", "methods must be a list"),
        ("entries = ['proden']", "no key entries"),
        ("datasets = ['cifar']", "cifar"),
        ("seeds = [-1]", "-1"),
        ("seeds = [1, 1]", "must differ"),
        ("seeds = 0", "must not be empty"),
        ("noise = 'white'", "white"),
        (
            "noise = {name = 'uniform', shares = 1.0}",
            "uniform has no shares; it has added, share",
        ),
        ("noise = {name = 'flip', share = 0.1}", "flip"),
        ("epsilons = [-0.1]", "-0.1"),
        ("preset = 'papers'", "papers"),
        ("train_rows = 'no'", "train_rows"),
        ("methods = [{name = 'proden', datasets = ['lost']}]", "lost"),
        ("methods = [{name = 'proden', datasets = []}]", "must not be empty"),
        ("methods = [{name = 'proden', datasets = 'digits'}]", "must be a list"),
        ("methods = ['proden', {name = 'proden', datasets = ['digits']}]", "must differ"),
        ("ood = [['mnist', 'notmnist']]", "mnist"),
        ("name = '../mine'", "name"),
        ("seeds = [", "TOML"),
        (f"a = {'[' * 100_000}", "recursion"),
        (f"a = {'{b = ' * 50_000}", "recursion"),
        ("audit = {mnist = [0.1]}", "mnist"),
        ("audit = {digits = []}", "must not be empty"),
        ("audit = {digits = [0.0]}", "above 0"),
        ("audit = {digits = [0.1, 0.1]}", "must differ"),
        ("audit = {digits = [inf]}", "above 0"),
        ("audit = {digits = ['much']}", "much"),
        ("audit = {digits = 0.1}", "audit of digits must be a list"),
        ("audit = [0.1]", "audit must be a table"),
    ],
    ids=lambda text: text[:40],
)
def test_what_a_grid_cannot_mean_is_refused_by_name(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(InputError, match=rf"mine\.toml .*{fault}"):
        read(tmp_path, line)


def test_a_grid_that_cannot_be_read_or_stored_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path, fault in (("none.toml", r"none\.toml"), (".", "plain"), ("pipe.toml", "plain")):
        with pytest.raises(InputError, match=fault):
            Grid.read(tmp_path / path)
    method = Proden(network=lambda shape, k: nn.Linear(shape[0], k))
    with pytest.raises(InputError, match=r"Proden\.network"):
        Grid("mine", (GridMethod("Proden", method),), ("lost",), (0,))
    with pytest.raises(InputError, match="digits"):
        Grid("mine", (GridMethod("Proden", Proden()),), ("digits", "lost"), (0,), noise=None)


def test_a_grid_survives_json_though_a_default_became_another_one(tmp_path: Path) -> None:
    within = Flip(0.25, Uniform(share=1.0))
    mine = Grid("m", (GridMethod("P", Proden()),), ("digits",), (0,), within)
    for grid in (mine, read(tmp_path, MINE), read(tmp_path, PARTS), *map(Grid.named, GRIDS)):
        again = Grid.of_json(grid.to_json())
        assert again == grid
        assert [run.key for run in again.runs()] == [run.key for run in grid.runs()]
    assert "kl_per_class" not in Grid.named("paper").to_json(), "a field that is newer than stores"
    stored = Grid.of_json(Grid.named("paper").changed(methods=["robust_pll"]).to_json())
    assert RobustPll().kl_per_class
    assert not stored.entries[0].method.kl_per_class  # type: ignore[attr-defined]


def test_keys_tell_apart_all_that_decides_on_a_result() -> None:
    run = Run(Proden(), "digits", Uniform(), 0)
    others = [
        replace(run, method=Proden(learning_rate=2e-3)),
        replace(run, method=ProdenEns(members=1)),
        replace(run, method=RobustPll()),
        replace(run, method=RobustPll(members=2, kl_ceiling=(0.5, 1))),
        replace(run, dataset="synthetic"),
        replace(run, noise=None),
        replace(run, noise=Uniform(share=0.6)),
        replace(run, noise=ClassDependent(added=2, share=0.5, cooccurrence=0.0)),
        replace(run, noise=Flip(0.1, Uniform())),
        replace(run, seed=1),
        replace(run, content="0123456789abcdef"),
    ]
    assert len({run.key, *(other.key for other in others)}) == len(others) + 1
    assert others[-1].key[:20] == run.key == replace(run, method=Proden(epochs=200)).key
    whole, real = (Run(RobustPll(kl_ceiling=one), "digits", None, 0).key for one in (1, 1.0))
    assert whole == real


def test_keys_and_names_of_before_stay_as_they_were() -> None:
    """Taken from stores that were written before fields of methods and grids were added."""
    published = replace(RobustPll.paper(), anneal="from-one")
    methods = [published, ProdenEdl.paper(), Proden()]
    assert [Run(method, "lost", None, 0).key for method in methods] == [
        *("7cc3e6577e46cedc8284", "34f669270b2c11dbef9c", "867241e3c0ec350eea12")
    ]
    assert Grid.named("paper").changed(epochs=5).name == "paper-bc7993"
    by_class = replace(published, kl_per_class=True)
    assert Run(by_class, "lost", None, 0).key != "7cc3e6577e46cedc8284"


def test_a_method_may_differ_from_dataset_to_dataset_under_one_label(tmp_path: Path) -> None:
    grid = read(tmp_path, PARTS)
    runs = [run for run in grid.runs() if run.label == "RobustPll"]
    ceilings = {run.dataset: run.method.kl_ceiling for run in runs}  # type: ignore[attr-defined]
    usual = RobustPll().kl_ceiling
    assert ceilings == {"digits": 0.1, "lost": usual, "synthetic": usual}
    assert len(grid.runs()) == 6
    fewer = grid.changed(datasets=["lost"], epochs=3)
    assert [entry.datasets for entry in fewer.entries] == [None, ("lost",)]
    assert len(grid.changed(methods=["robust_pll"]).entries) == 2
    apart = PARTS.replace('"robust_pll", datasets', '"proden_edl", label = "RobustPll", datasets')
    with pytest.raises(InputError, match="must differ"):
        read(tmp_path, apart)


def test_no_method_is_dropped_unsaid_where_it_has_datasets_of_its_own(tmp_path: Path) -> None:
    grid = read(tmp_path, PARTS.replace('["lost", "synthetic"]', '["lost"]'))
    with pytest.raises(InputError, match=r"RobustPll .* none of synthetic"):
        grid.changed(datasets=["synthetic"])
    assert len(grid.changed(datasets=["synthetic"], methods=["proden"]).entries) == 1


def test_the_grids_beyond_and_audit_attack_as_the_guide_says() -> None:
    pictures = ("mnist", "fmnist", "kmnist", "notmnist")
    for run in Grid.named("beyond").runs():
        if hasattr(run.method, "adversary"):
            assert run.method.adversary == (0.1 if run.dataset in pictures else 0.05)
    runs = Grid.named("audit").runs()
    assert {run.method.name for run in runs} == set(METHODS)
    for run in runs:
        assert names_of(run) == ["clean", "clean", "audit 0.02", "audit 0.05"]


def test_absent_datasets_are_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROBUSTPLL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    paper = Grid.named("paper")
    runs, absent = runs_here(paper.changed(datasets=["lost", "digits", "kmnist"]))
    assert ({run.dataset for run in runs}, set(absent)) == ({"digits"}, {"lost", "kmnist"})
    assert "robustpll datasets get kmnist" in absent["kmnist"]
    assert runs_here(paper.changed(datasets=["lost"]))[0] == ()
    runs, absent = runs_here(replace(Grid.named("quick"), ood=(("digits", "notmnist"),)))
    assert set(absent) == {"notmnist"}
    assert not any("ood" in name for run in runs for name in names_of(run))


def test_methods_whose_package_is_absent_are_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = Grid.named("crowds").changed(datasets=["digits"])
    monkeypatch.setattr("robustpll.bench.grid.find_spec", lambda _: None)
    runs, absent = runs_here(grid)
    assert set(absent) == {"cleanlab + LR", "crowd-kit Dawid-Skene + LR"}
    assert all("robustpll[crowds]" in remedy for remedy in absent.values())
    assert {run.label for run in runs} == {entry.label for entry in grid.entries} - set(absent)
    monkeypatch.setattr("robustpll.bench.grid.find_spec", lambda _: "here")
    assert runs_here(grid) == (grid.runs(), {})


def test_labels_alone_are_asked_for_where_there_are_no_features() -> None:
    for run in Grid.named("crowds").runs():
        parts = [condition.part for condition in run.conditions]
        assert parts == (["train"] if run.dataset.endswith("-votes") else ["train", "test"])


def test_a_changed_grid_has_a_name_of_its_own_and_methods_in_its_order(tmp_path: Path) -> None:
    paper, mine = PAPER, read(tmp_path, MINE)
    assert paper.changed() is paper
    for same in ((0, 1, 2, 3, 4), [0, 1, 2, 3, 4], 5):
        assert paper.changed(seeds=same).name == "paper"
    assert paper.changed(epsilons=[0, 0.1, 0.2, 0.3, 0.4], noise="instance-dependent") == paper
    plain = mine.changed(audit={"lost": [0.1]}, ood=[["digits", "synthetic"]])
    assert (plain.audit, plain.ood) == ((("lost", (0.1,)),), (("digits", "synthetic"),))
    with pytest.raises(InputError, match=r"must not be empty; got .*datasets"):
        paper.changed(datasets=[])
    assert len({paper.changed(epochs=5).name, paper.changed(epochs=6).name, paper.name}) == 3
    assert mine.changed(datasets=["lost"]).audit == mine.audit
    grid = paper.changed(methods=["RobustPll", "proden"])
    assert [entry.label for entry in grid.entries] == ["Proden", "RobustPll"]
    with pytest.raises(InputError, match="prodne"):
        paper.changed(methods=["prodne"])
    few = {"methods": ["proden"], "datasets": ["mnist"]}
    assert names_of(paper.changed(**few).runs()[0]) == ["clean", "ood notmnist"]
    new = paper.changed(**few, epsilons=(0.3,))  # attacks the datasets that are named
    assert names_of(new.runs()[0]) == ["clean", "pgd 0.3", "ood notmnist"]


@pytest.mark.parametrize("path", GRID_FILES, ids=lambda path: path.stem)
def test_the_grids_of_the_benchmarks_can_be_read(path: Path) -> None:
    """And settings are chosen by seeds that no reported number has seen."""
    grid = Grid.read(path)
    assert grid.name == path.stem
    keys = [run.key for run in grid.runs()]
    assert len(set(keys)) == len(keys), "two lines ask for the same"
    if path.stem.startswith("choose"):
        assert not set(grid.seeds) & set(Grid.named("beyond").seeds)


def test_the_grids_of_tables_choose_and_report_on_other_tables_with_other_seeds() -> None:
    report, chosen, pictures = (
        Grid.named(name) for name in ("tables", "tables-development", "tables-pictures")
    )
    assert [entry.label for entry in report.entries] == [entry.label for entry in chosen.entries]
    methods = [entry.method for entry in report.entries]
    assert {kind() for kind in PUBLISHED} <= set(methods)
    assert not set(report.seeds) & set(chosen.seeds)
    assert set(report.datasets) & set(chosen.datasets) == {"lost", "msrc-v2"}
    for grid in (report, chosen):
        assert grid.train_rows
        for run in grid.runs():
            has_candidates = entry_of(run.dataset).candidates is not None
            assert run.noise == (None if has_candidates else Annotators())
    assert (pictures.noise, pictures.ood) == (InstanceDependent(), (("mnist", "notmnist"),))


def test_the_grids_of_cifar_differ_in_noise_and_answers_of_people_need_none() -> None:
    grid = Grid.named("cifar")
    runs = grid.runs()
    assert len({run.key for run in runs}) == len(runs) == 36
    assert {run.method.name for run in runs} == {
        *("proden", "robust_pll", "crdpll", "pico", "papi", "auto")
    }
    noises = {run.dataset: run.noise for run in runs}
    assert noises == {"cifar10": Independent(0.5), "cifar10n": None}
    for name, noise in (
        ("cifar-01", Independent(0.1)),
        ("cifar-03", Independent(0.3)),
        ("cifar-instance", InstanceDependent()),
    ):
        other = Grid.named(name)
        assert other.entries == grid.entries
        assert {run.noise for run in other.runs()} == {noise}
        assert not {run.key for run in other.runs()} & {run.key for run in runs}


def test_the_worst_case_on_cifar_is_that_of_two_levels_of_a_byte() -> None:
    """Of the default, as in the grid cifar, and of one that was trained with an adversary."""
    grid = Grid.named("cifar-worst")
    assert grid.runs()[0].key in {run.key for run in Grid.named("cifar").runs()}
    for run in grid.runs():
        [*_, last] = run.conditions
        assert last.audit == pytest.approx(2 / 255, rel=1e-6)
    adversaries = {e.label: getattr(e.method, "adversary", 0) for e in grid.entries}
    assert adversaries["Auto"] is None
    assert adversaries["Auto, adversary"] == pytest.approx(2 / 255, rel=1e-6)


def test_answers_of_annotators_are_part_of_a_runs_key_but_are_not_stored_apart(
    tmp_path: Path,
) -> None:
    text = "methods = ['proden']\nnoise = {name = 'annotators', count = %d}\nseeds = 1"
    five, three = (read(tmp_path, text % count).runs()[0] for count in (5, 3))
    assert (five.noise, three.noise) == (Annotators(), Annotators(count=3))
    assert five.key != three.key
    assert five.noise_key == three.noise_key == ""
    assert replace(five, noise=Uniform()).noise_key


def test_changed_code_of_ones_own_class_has_another_key(tmp_path: Path) -> None:
    text = """
from dataclasses import dataclass
from robustpll.datasets.noise import CheckedNoise
from robustpll.methods import Proden

@dataclass(frozen=True)
class Mine(Proden):
    name, factor = "mine", {factor}

@dataclass(frozen=True)
class Added(CheckedNoise):
    def candidates(self, rows, labels, k, seeds):
        return {factor}
"""

    def run(factor: int) -> Run:
        path = tmp_path / f"own{factor}.py"
        path.write_text(text.format(factor=factor))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with patch.dict(NOISES, {"added": module.Added}):
            run = Run(module.Mine(), "digits", module.Added(), 0)
            assert run.key
            assert run.noise_key
        return run

    one, again, other = run(1), run(1), run(2)
    assert (one.key, one.noise_key) == (again.key, again.noise_key)
    assert one.key != other.key
    assert one.noise_key != other.noise_key
    ours = Run(Proden(), "digits", Uniform(), 0).description
    assert "code" not in ours["method"]
    assert "noise_code" not in ours


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ood = ["digits"]', "pairs of a dataset"),
        ("ood = [1]", "pairs of a dataset"),
        ('epsilons = ["a"]', "epsilons must be a list of numbers"),
        ('audit = {digits = ["a"]}', "audit of digits must be a list of numbers"),
        ("methods = [3]", "must be a name"),
    ],
)
def test_values_of_another_form_are_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, f'datasets = ["digits"]\nnoise = "uniform"\n{line}\n')
