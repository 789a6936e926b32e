"""Random views of pictures: shifts, flips, crops, colours, cutout, drawn for each model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from robustpll.engine.layers import seeded
from robustpll.engine.networks import MODERN, Network, Shape
from robustpll.engine.random import Draws, seed_of
from robustpll.errors import SHARE, InputError, Rule, check_fields

# In the order of a picture's amounts; one more operation changes nothing.
OPERATIONS = (
    *("rotate", "shear x", "shear y", "move x", "move y"),
    *("brightness", "contrast", "colour", "solarize", "posterize"),
)
ANGLE, SHEAR, MOVE, TONE = 0.52, 0.3, 0.6, 0.9  # largest: 30 degrees; 0.6 of half a side

FLIP = Rule("True, False or None", lambda flip: flip is None or isinstance(flip, bool))


@dataclass(frozen=True)
class Augmentation:
    """A random change of pictures whose pixels are scaled to the range from 0 to 1.

    Parameters
    ----------
    shift : float
        Largest shift in each direction, as a share of the side; the picture is mirrored beyond
        its edges.
    flip : bool or None
        Whether half of the pictures are mirrored. None: those in colour, because letters and
        digits must not be.
    crop : float
        Smallest share of the side that a crop keeps; it is enlarged to the whole picture.
    operations : int
        How many of ten operations are applied with random strengths, as in RandAugment (Cubuk et
        al., 2020): rotation, shears, shifts, brightness, contrast, colour, inverted light pixels,
        fewer grey levels.
    cutout : float
        Side of a grey square at a random place, as a share of the picture's side.

    Examples
    --------
    >>> from robustpll.methods import Proden
    >>> Proden(network="resnet9", augment=Augmentation(flip=False, cutout=0.25)).augment.shift
    0.125
    """

    shift: Annotated[float, SHARE] = 0.125
    flip: Annotated[bool | None, FLIP] = None
    crop: Annotated[float, Rule("above 0 and at most 1", lambda crop: 0 < crop <= 1)] = 1.0
    operations: Annotated[int, Rule("of at least 0", lambda count: count >= 0)] = 0
    cutout: Annotated[float, SHARE] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def numbers(self) -> int:
        """How many random numbers a picture needs."""
        return 6 + 2 * self.operations

    def flips(self, shape: Shape) -> bool:
        """Whether pictures of a shape (c, h, w) or (h, w) may be mirrored."""
        return (len(shape) == 3 and shape[0] == 3) if self.flip is None else self.flip

    def __call__(self, pictures: Tensor, drawn: Tensor) -> Tensor:
        """Change pictures (b, c, h, w), by uniform numbers (b, numbers)."""
        colour = pictures.shape[1] == 3
        flip = self.flips(pictures.shape[1:])
        amounts = self._amounts(drawn[:, 6:])  # (b, 10), each from -1 to 1
        pictures = self._moved(pictures, drawn, amounts, flip)
        if self.operations:
            pictures = _toned(pictures, amounts[:, 5:, None, None, None], colour=colour)
        if self.cutout:
            sides = pictures.shape[-2:]
            inside = [
                (torch.arange(side, device=drawn.device) + 0.5 - place[:, None] * side).abs()
                < self.cutout * side / 2
                for side, place in zip(sides, drawn[:, 4:6].T, strict=True)
            ]  # (b, h) and (b, w)
            hidden = inside[0][:, None, :, None] & inside[1][:, None, None, :]
            pictures = pictures.masked_fill(hidden, 0.5)
        return pictures

    def _amounts(self, drawn: Tensor) -> Tensor:
        """Strength of each operation; 0 for those that are not drawn."""
        amounts = drawn.new_zeros(len(drawn), len(OPERATIONS) + 1)
        for pair in drawn.view(len(drawn), self.operations, 2).unbind(1):
            choice, strength = pair.T
            chosen = (choice * amounts.shape[1]).long()[:, None]
            amounts = amounts.scatter(1, chosen, 2 * strength[:, None] - 1)
        return amounts[:, :-1]

    def _moved(self, pictures: Tensor, drawn: Tensor, amounts: Tensor, flip: bool) -> Tensor:
        """Shift, flip, crop, rotate and shear by one map from new to old coordinates, -1 to 1."""
        h, w = pictures.shape[-2:]
        zoom = self.crop + (1 - self.crop) * drawn[:, 3]
        mirror = 1 - 2 * (drawn[:, 2] < 0.5) if flip else 1
        down, right = (
            # by whole pixels, so that a shift alone does not blur
            (place * (int(self.shift * side) + 0.5)).round() * 2 / side + place * (1 - zoom)
            for place, side in zip((2 * drawn[:, :2] - 1).T, (h, w), strict=True)
        )
        angle, shear_x, shear_y, move_x, move_y = amounts[:, :5].T
        cos, sin = (ANGLE * angle).cos(), (ANGLE * angle).sin()
        shear_x, shear_y = SHEAR * shear_x, SHEAR * shear_y
        to_x = (zoom * mirror * (cos - sin * shear_y), zoom * (cos * shear_x - sin))
        to_y = (zoom * mirror * (sin + cos * shear_y), zoom * (sin * shear_x + cos))
        theta = torch.stack([*to_x, right + MOVE * move_x, *to_y, down + MOVE * move_y], -1)
        size = list(pictures.shape)
        grid = F.affine_grid(theta.view(-1, 2, 3), size, align_corners=False).to(pictures.dtype)
        return F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)


def _toned(x: Tensor, amounts: Tensor, *, colour: bool) -> Tensor:
    """Change light and colour of pictures (b, c, h, w), by amounts (b, 5, 1, 1, 1)."""
    brightness, contrast, saturation, solarize, posterize = amounts.unbind(1)
    x = (x * (1 + TONE * brightness)).clamp(0, 1)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (mean + (x - mean) * (1 + TONE * contrast)).clamp(0, 1)
    if colour:
        grey = x.mean(1, keepdim=True)
        x = (grey + (x - grey) * (1 + TONE * saturation)).clamp(0, 1)
    x = torch.where((x > 1 - solarize.abs()) & (solarize != 0), 1 - x, x)
    levels = 2 ** (8 - 4 * posterize.abs())  # from 256 down to 16
    return torch.where(posterize != 0, (x * levels).floor() / levels, x)


RECIPES: Mapping[str, Augmentation] = {
    "weak": Augmentation(),
    "strong": Augmentation(operations=2, cutout=0.5),
}
Augment = Literal["auto", "weak", "strong"] | Callable[[Tensor], Tensor] | None
AUGMENT = Rule(
    "'auto', 'weak', 'strong', None, an Augmentation, or a callable from pictures to pictures",
    lambda value: (
        (callable(value) and not isinstance(value, type))
        or value is None
        or str(value) in ("auto", *RECIPES)
    ),
)


@dataclass(frozen=True)
class Views:
    """The views of a training step, by the names that a method asks for."""

    recipes: Mapping[str, Any]  # None: the picture itself
    is_foreign: bool  # whether a user's function changes the pictures

    @classmethod
    def of(
        cls, names: tuple[str, ...], augment: Augment, network: Network, shape: Shape
    ) -> Self | None:
        """Return the views for a method that asks for these names; None if no row is changed.

        "auto" changes pictures if the method compares views or the network is convolutional, but
        for those of version 0.1, whose results stay.
        """
        is_rich = bool(names) or (isinstance(network, str) and network in MODERN)
        if len(shape) < 2 or augment is None or (augment == "auto" and not is_rich):
            return None
        recipes: dict[str, Any] = {
            name: RECIPES[name.rstrip("2") if augment == "auto" else augment]
            if isinstance(augment, str)
            else augment
            for name in names or ("weak",)
        }
        return cls(recipes, not isinstance(augment, str | Augmentation))

    def draw(self, rows: int, draws: Draws) -> Any:
        """Draw what a step needs before it: torch's compiler does not accept a generator."""
        if self.is_foreign:
            return draws.seeds()
        return {name: draws.uniform(rows, view.numbers) for name, view in self.recipes.items()}

    def __call__(self, x: Tensor, drawn: Any) -> dict[str, Tensor]:
        """Return the views of rows (M, b, *shape), each of their shape."""
        if self.is_foreign:
            return {name: self._by_model(x, drawn, name) for name in self.recipes}
        pictures = x.flatten(0, 1)
        pictures = pictures[:, None] if x.ndim == 4 else pictures  # grey
        return {
            name: view(pictures, drawn[name].flatten(0, 1)).view_as(x)
            for name, view in self.recipes.items()
        }

    def _by_model(self, x: Tensor, drawn: list[int], name: str) -> Tensor:
        """Apply a user's function to the pictures of each model, with its own seed."""
        views = []
        for seed, rows in zip(drawn, x, strict=True):
            with seeded(seed_of(seed, name), x.device):
                view = self.recipes[name](rows.clone())
            if not isinstance(view, Tensor) or view.shape != rows.shape:
                returned = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
                raise InputError(
                    f"augment must return a tensor of the shape {tuple(rows.shape)} that it got; "
                    f"it returned {returned}."
                )
            views.append(view.to(rows))
        return torch.stack(views)
