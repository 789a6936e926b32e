"""What a grid asks for, and the keys it is stored by."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from robustpll import InputError
from robustpll.bench.grid import GRIDS, Condition, Entry, Grid, Run, present
from robustpll.datasets.noise import ClassDependent, Flip, InstanceDependent, Uniform
from robustpll.methods import (
    METHODS,
    PUBLISHED,
    Proden,
    ProdenEdl,
    ProdenEns,
    RobustPll,
    RobustPllEns,
)

GRID_FILES = Path(__file__).parents[2] / "benchmarks" / "grids"
MINE = """
methods = ["proden", {name = "robust_pll", label = "no KL", kl_ceiling = 0}]
datasets = ["digits", "lost"]
seeds = [3, 1]
noise = {name = "class-dependent", share = 1.0}
epsilons = [0, 0.1]
epochs = 7
attacked = ["digits"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_the_paper_grid_is_the_published_one_and_sound_differs_in_methods_alone() -> None:
    grid, sound = Grid.named("paper"), Grid.named("sound")
    assert [entry.method for entry in grid.entries] == [kind.paper() for kind in PUBLISHED]
    assert [entry.method for entry in sound.entries] == [kind() for kind in PUBLISHED]
    assert replace(sound, name="paper", entries=grid.entries) == grid
    by_run = {(run.label, run.dataset, run.seed): run for run in grid.runs()}
    assert len(by_run) == 19 * 12 * 5
    mnist, lost = by_run["Proden", "mnist", 0], by_run["Proden", "lost", 4]
    assert mnist.noise == InstanceDependent()
    assert [condition.name for condition in mnist.conditions] == ["clean", "ood notmnist"]
    assert lost.noise is None
    attacks = [f"pgd 0.{tenth}" for tenth in (1, 2, 3, 4)]
    assert [condition.name for condition in lost.conditions] == ["clean", *attacks]
    unattacked = {run.label for run in grid.runs() if run.conditions == (Condition("test"),)}
    assert {"PlKnn", "PlSvm", "Ipal", "PlEcoc", "DstPll"} <= unattacked


def test_a_toml_file_says_it_all(tmp_path: Path) -> None:
    grid = Grid.read(written(tmp_path, MINE))
    assert grid.name == "mine"
    assert grid.entries == (
        Entry("Proden", Proden(epochs=7)),
        Entry("no KL", RobustPll(epochs=7, kl_ceiling=0)),
    )
    assert grid.seeds == (3, 1)
    assert grid.noise == ClassDependent(share=1.0)
    assert grid.epsilons == (0.1,)
    conditions = {each.dataset: each.conditions for each in grid.runs()}
    assert conditions["digits"] == (Condition("test"), Condition("test", 0.1))
    assert conditions["lost"] == (Condition("test"),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("method = ['proden']", "method"),
        ("methods = ['prodne']", "prodne"),
        ("methods = [{name = 'proden', epoch = 3}]", "epoch"),
        ("methods = ['proden', 'proden']", "labels must differ"),
        ("methods = 'proden'", "methods must be a list"),
        ("datasets = ['cifar']", "cifar"),
        ("seeds = [-1]", "-1"),
        ("seeds = [1, 1]", "repeat"),
        ("noise = 'white'", "white"),
        ("noise = {name = 'uniform', shares = 1.0}", "shares"),
        ("noise = {name = 'flip', share = 0.1}", "flip"),
        ("epsilons = [-0.1]", "-0.1"),
        ("preset = 'papers'", "papers"),
        ("methods = [{name = 'proden', datasets = ['lost']}]", "lost"),
        ("methods = [{name = 'proden', datasets = []}]", "one or more"),
        ("methods = [{name = 'proden', datasets = 'digits'}]", "must be a list"),
        ("methods = ['proden', {name = 'proden', datasets = ['digits']}]", "labels must differ"),
        ("ood = [['mnist', 'notmnist']]", "mnist"),
        ("name = '../mine'", "name"),
        ("seeds = [", "TOML"),
    ],
)
def test_what_a_grid_cannot_mean_is_refused_by_name(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError, match=r"mine\.toml") as refused:
        Grid.read(written(tmp_path, line))
    assert said in str(refused.value)


def test_a_grid_that_cannot_be_read_or_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml"):
        Grid.read(tmp_path / "none.toml")
    method = Proden(network=lambda shape, k: nn.Linear(shape[0], k))
    with pytest.raises(InputError, match=r"Proden\.network"):
        Grid("mine", (Entry("Proden", method),), ("lost",), (0,))
    with pytest.raises(InputError, match="digits"):
        Grid("mine", (Entry("Proden", Proden()),), ("digits", "lost"), (0,), noise=None)


def test_a_grid_survives_json() -> None:
    within = Flip(0.25, Uniform(share=1.0))
    mine = Grid("m", (Entry("P", Proden()),), ("digits",), (0,), within)
    for grid in (mine, *map(Grid.named, GRIDS)):
        again = Grid.of_json(grid.to_json())
        assert again == grid
        assert [run.key for run in again.runs()] == [run.key for run in grid.runs()]


def test_keys_tell_apart_all_that_decides_on_a_result() -> None:
    run = Run(Proden(), "digits", Uniform(), 0)
    others = [
        replace(run, method=Proden(learning_rate=2e-3)),
        replace(run, method=ProdenEns(members=1)),
        replace(run, method=RobustPllEns()),
        replace(run, method=RobustPllEns(kl_ceiling=(0.5, 1, 2, 4, 9))),
        replace(run, dataset="synthetic"),
        replace(run, noise=None),
        replace(run, noise=Uniform(share=0.6)),
        replace(run, noise=ClassDependent(added=2, share=0.5, cooccurrence=0.0)),
        replace(run, noise=Flip(0.1, Uniform())),
        replace(run, seed=1),
    ]
    assert len({run.key, *(other.key for other in others)}) == len(others) + 1
    whole, real = (Run(RobustPll(kl_ceiling=one), "digits", None, 0).key for one in (1, 1.0))
    assert whole == real


def test_keys_and_names_of_before_stay_as_they_were() -> None:
    """Taken from stores that were written before fields of methods and grids were added."""
    published = replace(RobustPll.paper(), anneal="from-one")
    known = [published, ProdenEdl.paper(), Proden()]
    assert [Run(method, "lost", None, 0).key for method in known] == [
        *("7cc3e6577e46cedc8284", "34f669270b2c11dbef9c", "867241e3c0ec350eea12")
    ]
    assert Grid.named("paper").changed(epochs=5).name == "paper-bc7993"
    by_class = replace(published, kl_per_class=True)
    assert Run(by_class, "lost", None, 0).key != "7cc3e6577e46cedc8284"


def test_a_stored_grid_without_later_fields_means_what_it_meant() -> None:
    """Though a default became another one."""
    grid = Grid.of({"methods": ["robust_pll"], "datasets": ["lost"], "seeds": 1, "preset": "paper"})
    stored = grid.to_json()
    assert "kl_per_class" not in stored
    assert Grid.of_json(stored) == grid
    assert RobustPll().kl_per_class
    assert not Grid.of_json(stored).entries[0].method.kl_per_class  # type: ignore[attr-defined]


PARTS = """
methods = [
    "proden",
    {name = "robust_pll", kl_ceiling = 0.1, datasets = ["digits"]},
    {name = "robust_pll", datasets = ["lost", "synthetic"]},
]
datasets = ["digits", "lost", "synthetic"]
seeds = 1
"""


def test_a_method_may_differ_from_dataset_to_dataset_under_one_label(tmp_path: Path) -> None:
    grid = Grid.read(written(tmp_path, PARTS))
    ceilings = {
        each.dataset: each.method.kl_ceiling  # type: ignore[attr-defined]
        for each in grid.runs()
        if each.label == "RobustPll"
    }
    usual = RobustPll().kl_ceiling
    assert ceilings == {"digits": 0.1, "lost": usual, "synthetic": usual}
    assert len(grid.runs()) == 6
    assert Grid.of_json(grid.to_json()) == grid
    fewer = grid.changed(datasets=["lost"], epochs=3)
    assert [entry.datasets for entry in fewer.entries] == [None, ("lost",)]
    assert len(grid.changed(methods=["robust_pll"]).entries) == 2
    apart = PARTS.replace('"robust_pll", datasets', '"proden_edl", label = "RobustPll", datasets')
    with pytest.raises(InputError, match="labels must differ"):
        Grid.read(written(tmp_path, apart))


def test_the_grid_beyond_trains_against_more_on_pictures() -> None:
    reach = {
        (each.label, each.dataset): each.method.adversary
        for each in Grid.named("beyond").runs()
        if hasattr(each.method, "adversary")
    }
    pictures = {"mnist", "fmnist", "kmnist", "notmnist"}
    tables = {"lost", "msrc-v2", "bird-song", "fg-net", "italian"}
    assert {name for _, name in reach} == pictures | tables
    assert {name for (_, name), far in reach.items() if far == 0.1} == pictures
    assert {far for (_, name), far in reach.items() if name not in pictures} == {0.05}


def test_the_grid_audit_audits_all_methods_and_attacks_none_otherwise() -> None:
    runs = Grid.named("audit").runs()
    assert {each.method.name for each in runs} == set(METHODS)
    for each in runs:
        names = [condition.name for condition in each.conditions]
        assert names == ["clean", "clean", "audit 0.02", "audit 0.05"]


def test_absent_datasets_are_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    grid = Grid.named("paper").changed(datasets=["lost", "digits", "kmnist"])
    here, absent = present(grid)
    assert here is not None
    assert here.datasets == ("digits",)
    assert set(absent) == {"lost", "kmnist"}
    assert "robustpll datasets get kmnist" in absent["kmnist"]
    assert present(Grid.named("paper").changed(datasets=["lost"]))[0] is None
    here, absent = present(replace(Grid.named("quick"), ood=(("digits", "notmnist"),)))
    assert here is not None
    assert (here.ood, set(absent)) == ((), {"notmnist"})


def test_a_changed_grid_has_a_name_of_its_own() -> None:
    paper = Grid.named("paper")
    assert paper.changed() is paper
    assert paper.changed(seeds=(0, 1, 2, 3, 4)).name == "paper"
    names = {paper.changed(epochs=5).name, paper.changed(epochs=6).name, paper.name}
    assert len(names) == 3


def test_methods_are_chosen_by_label_or_name_in_the_grids_order() -> None:
    grid = Grid.named("paper").changed(methods=["RobustPll", "proden"])
    assert [entry.label for entry in grid.entries] == ["Proden", "RobustPll"]
    with pytest.raises(InputError, match="prodne"):
        Grid.named("paper").changed(methods=["prodne"])


def test_who_names_strengths_attacks_the_datasets_named() -> None:
    grid = Grid.named("paper").changed(methods=["proden"], datasets=["mnist"], epsilons=(0.3,))
    assert "pgd 0.3" in [condition.name for condition in grid.runs()[0].conditions]
    plain = Grid.named("paper").changed(methods=["proden"], datasets=["mnist"])
    assert [each.name for each in plain.runs()[0].conditions] == ["clean", "ood notmnist"]


@pytest.mark.parametrize("path", sorted(GRID_FILES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_grids_of_the_benchmarks_can_be_read(path: Path) -> None:
    """And settings are chosen by seeds that no reported number has seen."""
    grid = Grid.read(path)
    assert grid.name == path.stem
    keys = [each.key for each in grid.runs()]
    assert len(set(keys)) == len(keys), "two lines ask for the same"
    if path.stem.startswith("choose"):
        assert not set(grid.seeds) & set(Grid.named("beyond").seeds)


def test_no_method_is_dropped_unsaid_where_it_has_datasets_of_its_own() -> None:
    own = [{"name": name, "datasets": ["lost"]} for name in ("rc", "cc")]
    grid = Grid.of({"methods": ["proden", *own], "datasets": ["lost", "digits"], "seeds": 1})
    assert len(grid.changed(datasets=["lost"]).entries) == 3
    with pytest.raises(InputError, match=r"Cc, Rc .* none of digits"):
        grid.changed(datasets=["digits"])
    assert len(grid.changed(datasets=["digits"], methods=["proden"]).entries) == 1
