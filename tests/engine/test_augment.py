"""Views of pictures: what is drawn for a model decides them, and rows stay as they are."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robustpll import InputError, PLLClassifier
from robustpll.engine.augment import RECIPES, Augmentation, Views
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.methods import Crdpll, Proden, RobustPllAt

DOUBLE = torch.empty(0, dtype=torch.float64)
NOTHING = Augmentation(shift=0, flip=False)
EVERYTHING = Augmentation(shift=0.25, flip=True, crop=0.5, operations=3, cutout=0.5)


def pictures(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def drawn(recipe: Augmentation, rows: int, **places: float) -> Tensor:
    """Numbers for a recipe: 0.5 each, which changes nothing, but for those that are named."""
    names = ("down", "right", "flip", "zoom", "cut_y", "cut_x")
    numbers = torch.full((rows, recipe.numbers), 0.5, dtype=torch.float64)
    for name, value in places.items():
        numbers[:, names.index(name)] = value
    return numbers


@pytest.mark.parametrize("shape", [(20, 1, 8, 8), (20, 3, 9, 12)])
def test_nothing_asked_is_nothing_changed(shape: tuple[int, ...]) -> None:
    x = pictures(*shape)
    for flip in (False, None):
        recipe = Augmentation(shift=0, flip=flip)
        views = recipe(x, pictures(20, recipe.numbers, seed=1))
        same = torch.isclose(views, x, rtol=0, atol=1e-12).flatten(1).all(1)
        mirrored = torch.isclose(views, x.flip(-1), rtol=0, atol=1e-12).flatten(1).all(1)
        colour = shape[1] == 3 and flip is None  # letters and digits must not be mirrored
        assert (same | mirrored).all()
        assert bool(mirrored.any()) == colour
        assert same.any()


def test_a_shift_moves_by_whole_pixels_and_mirrors_the_edge() -> None:
    x, recipe = pictures(1, 1, 8, 10), Augmentation(shift=0.2, flip=False)
    padded = np.pad(x[0, 0].numpy(), 2, mode="symmetric")
    seen = set()
    for down in np.linspace(0.001, 0.999, 12):
        for right in np.linspace(0.001, 0.999, 12):
            view = recipe(x, drawn(recipe, 1, down=down, right=right))[0, 0].numpy()
            places = [
                (dy, dx)
                for dy in range(-2, 3)
                for dx in range(-2, 3)
                if np.allclose(view, padded[2 + dy : 10 + dy, 2 + dx : 12 + dx], atol=1e-12)
            ]
            assert len(places) == 1
            seen.add(places[0])
    # at most a fifth of each side: 1.6 and 2 pixels
    assert seen == {(dy, dx) for dy in range(-1, 2) for dx in range(-2, 3)}


def test_a_crop_is_enlarged_and_a_square_is_cut() -> None:
    x = pictures(1, 1, 8, 8)
    half = Augmentation(shift=0, flip=False, crop=0.5)
    view = half(x, drawn(half, 1, zoom=0.0))
    centre = torch.nn.functional.interpolate(x[..., 2:6, 2:6], scale_factor=2, mode="bilinear")
    inner = (..., slice(1, -1), slice(1, -1))  # beyond the edge of a crop are its neighbours
    torch.testing.assert_close(view[inner], centre[inner], rtol=0, atol=1e-12)
    cut = Augmentation(shift=0, flip=False, cutout=0.5)
    view = cut(x, drawn(cut, 1, cut_y=0.5, cut_x=0.0))
    expected = x.clone()
    expected[..., 2:6, :2] = 0.5
    torch.testing.assert_close(view, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("recipe", [*RECIPES.values(), EVERYTHING])
def test_values_stay_in_range_and_each_row_has_its_own_view(
    recipe: Augmentation, channels: int
) -> None:
    x = pictures(1, channels, 16, 16).expand(300, -1, -1, -1)
    before, numbers = x.clone(), pictures(300, recipe.numbers, seed=1)
    views = recipe(x, numbers)
    assert torch.equal(x, before)
    assert views.shape == x.shape
    assert views.min() >= -1e-9
    assert views.max() <= 1 + 1e-9
    assert len(views.flatten(1).unique(dim=0)) >= 25  # shifts alone
    assert torch.equal(recipe(x[7:8], numbers[7:8]), views[7:8])


def test_each_operation_changes_pictures_and_some_change_nothing() -> None:
    recipe = Augmentation(shift=0, flip=False, operations=1)
    x = pictures(11, 3, 16, 16)
    numbers = drawn(recipe, 11)
    numbers[:, 6] = (torch.arange(11) + 0.5) / 11
    numbers[:, 7] = 0.9
    change = (recipe(x, numbers) - x).abs().amax((1, 2, 3))
    assert (change[:10] > 0.01).all()
    assert change[10] < 1e-12


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"shift": -0.1}, "'shift' of Augmentation must be a float from 0 to 1"),
        ({"flip": 2}, "'flip' of Augmentation must be True, False or None"),
        ({"crop": 0.0}, "'crop' of Augmentation must be a float above 0 and at most 1"),
        ({"operations": -1}, "'operations' of Augmentation must be an int of at least 0"),
        ({"cutout": 1.5}, "'cutout' of Augmentation must be a float from 0 to 1"),
    ],
)
def test_a_field_without_a_meaning_is_refused(values: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Augmentation(**values)


# Which pictures are changed


def test_which_rows_have_views() -> None:
    names = ("weak", "strong", "strong2")

    def recipes(names: tuple[str, ...], augment: Any, network: Any, shape: Any = (8, 8)) -> Any:
        views = Views.of(names, augment, network, shape)
        return views and [*views.recipes.items()]

    assert recipes(names, "auto", "mlp", (64,)) is None
    assert recipes(names, None, "resnet9") is None
    for former in ("mlp", "lenet", "resnet", lambda shape, k: torch.nn.Identity()):
        assert recipes((), "auto", former) is None  # results of version 0.1 stay
    weak, strong = RECIPES["weak"], RECIPES["strong"]
    assert recipes((), "auto", "convnet") == [("weak", weak)]
    assert recipes((), "strong", "mlp") == [("weak", strong)]
    assert recipes(names, "auto", "mlp") == [
        ("weak", weak),
        ("strong", strong),
        ("strong2", strong),
    ]
    assert recipes(names, NOTHING, "mlp") == [(name, NOTHING) for name in names]


@pytest.mark.parametrize("augment", ["auto", "strong", EVERYTHING, torch.Tensor.sqrt])
def test_a_models_views_are_the_same_alone_and_in_a_bundle(augment: Any) -> None:
    for shape in ((8, 8), (3, 8, 9)):
        views = Views.of(("weak", "strong"), augment, "mlp", shape)
        assert views is not None
        x = pictures(3, 20, *shape)
        before = x.clone()
        bundle, alone = (Draws.of(seeds, like=DOUBLE) for seeds in ((5, 6, 7), (6,)))
        for _ in range(2):
            both = views(x, views.draw(20, bundle))
            one = views(x[1:2], views.draw(20, alone))
            assert both.keys() == one.keys() == {"weak", "strong"}
            for name, view in one.items():
                assert view.shape == (1, 20, *shape)
                assert torch.equal(view[0], both[name][1])
        assert torch.equal(x, before)


def noisy(rows: Tensor) -> Tensor:
    """A change of one's own, in place and by the global generator."""
    return rows.add_(0.1 * torch.rand_like(rows)).clamp_(0, 1)


@pytest.mark.parametrize("augment", ["weak", noisy])
@pytest.mark.parametrize("kind", [Proden, Crdpll, RobustPllAt])
def test_training_with_views_is_the_same_alone_and_in_a_bundle(
    kind: Any, augment: Any, task_of: Any
) -> None:
    settings: Any = {"epochs": 2, "batch_size": 50, "network": "small"}
    task, state = task_of(7, rows=120, shape=(8, 8)), torch.get_rng_state()
    pool = task.rows.pool.clone()
    alone, plain = (train(kind(**settings, augment=a), task) for a in (augment, None))
    bundle = train(kind(**settings, augment=augment), task_of(5, 7, rows=120, shape=(8, 8)))
    assert torch.equal(alone.label_weights[0], bundle.label_weights[1])
    assert not torch.equal(alone.label_weights, plain.label_weights)
    assert torch.equal(task.rows.pool, pool)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("change", "returned"),
    [
        (lambda x: x[:, :4], r"\(40, 4, 8"),
        (lambda x: None, "None"),
        (lambda x: x.numpy(), "ndarray"),
    ],
    ids=["shape", "nothing", "array"],
)
def test_a_change_of_ones_own_must_return_a_tensor_of_the_shape(
    change: Any, returned: str, digits: Any
) -> None:
    model = PLLClassifier(Proden(epochs=1, augment=change), random_state=0)
    rows = digits[0][:40].reshape(-1, 8, 8)
    with pytest.raises(
        InputError, match=rf"shape \(40, 8, 8\) that it got; it returned {returned}"
    ):
        model.fit(rows, digits[2][:40])


def test_a_change_of_ones_own_may_be_computed_in_float64(digits: Any) -> None:
    rows, labels = digits[0][:40].reshape(-1, 8, 8), digits[2][:40]
    losses = [
        PLLClassifier(Proden(epochs=1, augment=change), random_state=0).fit(rows, labels).history_
        for change in (lambda x: x / 2, lambda x: x.double() / 2)
    ]
    np.testing.assert_array_equal(losses[0]["loss"], losses[1]["loss"])


def test_a_class_is_no_change_of_pictures() -> None:
    with pytest.raises(InputError, match="augment"):
        Proden(augment=Augmentation)  # type: ignore[arg-type]
