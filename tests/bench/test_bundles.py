"""What trains together."""

import pytest

from robustpll.bench.bundles import MOST_SECONDS, Bundle, bundles, noise_bundles, seconds_of
from robustpll.bench.grid import Grid
from robustpll.bench.noise_cache import Drawn
from robustpll.datasets.noise import InstanceDependent, Uniform
from robustpll.methods import PUBLISHED

PAPER = Grid.named("paper")


def of(label: str, **changes: object) -> list[Bundle]:
    return bundles(PAPER.changed(methods=[label], **changes).runs(), joined=True)


def test_the_three_large_picture_sets_are_one_bundle() -> None:
    pictures = of("proden", datasets=["mnist", "lost", "fmnist", "notmnist", "kmnist"])
    found = {tuple(dict.fromkeys(e.run.dataset for e in b.runs)): b.models for b in pictures}
    assert found == {("mnist", "fmnist", "kmnist"): 15, ("notmnist",): 5, ("lost",): 5}


@pytest.mark.parametrize("joined", [True, False])
def test_every_run_is_in_one_bundle(joined: bool) -> None:
    runs = PAPER.runs()
    found = [each.run.key for bundle in bundles(runs, joined=joined) for each in bundle.runs]
    assert sorted(found) == sorted(each.run.key for each in runs)


def test_runs_of_a_bundle_can_be_stacked() -> None:
    for bundle in bundles(PAPER.runs(), joined=True):
        methods = [each.run.method for each in bundle.runs]
        type(methods[0]).stacked(methods)  # raises where they cannot


def test_numbers_may_differ_within_a_bundle_and_other_fields_not() -> None:
    kinds = [
        {"name": "robust_pll", "label": "a", "kl_ceiling": 0.5},
        {"name": "robust_pll", "label": "b", "kl_ceiling": 2.0},
        {"name": "robust_pll", "label": "c", "batch_size": 64},
    ]
    grid = Grid.of({"methods": kinds, "datasets": ["digits"], "seeds": 2})
    found = [{each.label for each in bundle.runs} for bundle in bundles(grid.runs(), joined=True)]
    assert sorted(map(sorted, found)) == [["a", "b"], ["c"]]


def test_on_a_cpu_each_run_is_alone_so_that_a_rest_is_cut_like_the_whole() -> None:
    assert all(len(bundle.runs) == 1 for bundle in bundles(PAPER.runs(), joined=False))


def test_methods_for_the_host_stay_off_the_gpu() -> None:
    places = {b.runs[0].run.method.name: b.place for b in bundles(PAPER.runs(), joined=True)}
    assert {name for name, place in places.items() if place == "host"} == {"pl_svm", "pl_ecoc"}
    assert set(places) == {kind.name for kind in PUBLISHED}


def test_bundles_stay_within_memory() -> None:
    many = bundles(
        PAPER.changed(methods=["proden_ens"], seeds=tuple(range(100))).runs(), joined=True
    )
    assert max(bundle.models for bundle in many) == 100
    wide = bundles(PAPER.changed(methods=["proden"], datasets=["yahoo-news"]).runs(), joined=True)
    assert sum(len(bundle.runs) for bundle in wide) == 5


def test_the_longest_come_first() -> None:
    found = bundles(PAPER.runs(), joined=True)
    seconds = [seconds_of(bundle, cuda=True) for bundle in found]
    assert seconds == sorted(seconds, reverse=True)


def test_noise_is_drawn_once_for_all_methods() -> None:
    needed = {drawn for b in bundles(PAPER.runs(), joined=True) for drawn in b.needs}
    assert len(needed) == 4 * 5
    together = noise_bundles(sorted(needed, key=repr), joined=True)
    assert sorted(len(bundle.drawn) for bundle in together) == [5, 15]
    assert len(noise_bundles(needed, joined=False)) == 20


def test_noises_of_two_kinds_are_drawn_apart() -> None:
    drawn = [Drawn("digits", noise, 0) for noise in (Uniform(), InstanceDependent())]
    assert len(noise_bundles(drawn, joined=True)) == 2


def test_a_kill_loses_minutes_at_most() -> None:
    many = PAPER.changed(seeds=tuple(range(40)))
    for bundle in bundles(many.runs(), joined=True):
        if bundle.place == "device" and len(bundle.runs) > 1:
            assert seconds_of(bundle, cuda=True) <= MOST_SECONDS
