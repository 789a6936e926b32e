"""Dempster-Shafer theory: what several witnesses say together, as exact masses of sets of classes.

A witness names a set of classes, gives it the mass 1/2, and leaves the other half to the base, the
set of all classes that are possible. So the mass of a set is the share of groups of witnesses,
among all 2^m groups, whose sets have just this intersection. Who names nothing of the base, or all
of it, is no witness. By Yager's rule the mass of the empty set, on which witnesses contradict each
other, goes to the base. Masses are multiples of 2^-m, which float64 holds without rounding.

Sets are written as numbers whose bit c stands for class c.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustpll.opinion import Opinion

MOST_WITNESSES = 52  # multiples of 2^-52 up to 1 fit the 53 bits of a float64
LARGEST_TABLE = 12  # named classes up to which all their sets are tabulated, not those that occur
NUMBERS_AT_ONCE = 2**21  # masses of one block of rows; 16 MiB


def opinion_of(candidates: Tensor, witnesses: Tensor, base: Tensor) -> Opinion:
    """What the candidates (n, k) of each row's witnesses (q, m) say of the base's classes (q, k).

    Belief in a class is the mass of the set of it alone; what no class alone has is uncertainty.
    Probability is proportional to belief, so the uncertainty is shared by that, as a prior. If no
    class alone has mass, probability is uniform on the set with the largest mass, and of several
    such sets on the smallest. There is but one: if X and Y have the largest mass, no less is on
    their intersection; and if that is empty, the base, which gets its mass, has more than both.

    >>> candidates = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.bool)
    >>> base = torch.ones(2, 3, dtype=torch.bool)
    >>> found = opinion_of(candidates, torch.tensor([[0, 1], [1, 2]]), base)
    >>> found.belief
    tensor([[0.0000, 0.2500, 0.0000],
            [0.0000, 0.0000, 0.5000]], dtype=torch.float64)
    >>> found.probability
    tensor([[0., 1., 0.],
            [0., 0., 1.]], dtype=torch.float64)
    """
    belief, leading = _masses(candidates, witnesses, base)
    total = belief.sum(-1, keepdim=True)
    shared = leading.double() / leading.sum(-1, keepdim=True)
    likely = torch.where(total > 0, belief / total, shared)
    return Opinion(belief, likely, 1 - total[:, 0])


def table_of(said: Tensor, base: Tensor) -> Tensor:
    """Masses of all 2^k sets, (2^k, q), from what witnesses said (q, m, k) and the base (q, k).

    The commonality of a set, the mass of all sets that contain it, is 1/2 for each witness whose
    set does not, multiplied. Masses follow from it by the Moebius transform.

    >>> said = torch.tensor([[[1, 1, 0], [0, 1, 1]]], dtype=torch.bool)
    >>> table_of(said, torch.ones(1, 3, dtype=torch.bool))[:, 0]
    tensor([0.0000, 0.0000, 0.2500, 0.2500, 0.0000, 0.0000, 0.2500, 0.2500],
           dtype=torch.float64)
    """
    m, k = said.shape[1:]
    said = said & base[:, None]
    named = torch.where(said.any(-1, keepdim=True), said, base[:, None])  # as good as silent
    bit = torch.arange(k, device=said.device)
    sets = (torch.cat([named, base[:, None]], 1).long() << bit).sum(-1).T  # (m + 1, q)
    containing = torch.zeros(2**k, len(said), dtype=torch.int32, device=said.device)
    containing.scatter_add_(0, sets, torch.ones_like(sets, dtype=torch.int32))
    _over_supersets(containing, 1)
    # Of m + 1 sets, the base among them: what none contains is outside of the base.
    commonality = [0.0, *(0.5 ** (m + 1 - count) for count in range(1, m + 2))]
    mass = torch.tensor(commonality, dtype=torch.float64, device=said.device)[containing]
    _over_supersets(mass, -1)
    conflict = mass[:1].clone()
    mass[0] = 0
    return mass.scatter_add_(0, sets[-1:], conflict)


def _over_supersets(table: Tensor, sign: int) -> None:
    """Adds up a table (2^k, q) over the supersets of each set, or with -1 undoes it; in place."""
    bit = 1
    while bit < len(table):
        pairs = table.view(-1, 2, bit, table.shape[1])  # sets without a class, and with it
        pairs[:, 0].add_(pairs[:, 1], alpha=sign)
        bit *= 2


def masses_of(said: Iterable[int], base: int) -> dict[int, float]:
    """Masses of the sets that have any, for one row; with no limit to the number of classes.

    It takes as long as there are distinct intersections: few where few classes are named.

    >>> masses_of([0b011, 0b110], base=0b111)
    {7: 0.25, 3: 0.25, 6: 0.25, 2: 0.25}
    """
    heard = Counter(named & base for named in said)
    del heard[0], heard[base]
    groups = {base: 1}  # intersection -> how many groups of witnesses have it
    for named, times in heard.items():
        joining = 2**times - 1  # ways to add at least one of those who say the same
        for met, count in list(groups.items()):
            both = met & named
            groups[both] = groups.get(both, 0) + joining * count
    groups[base] += groups.pop(0, 0)
    return {met: count / 2 ** heard.total() for met, count in groups.items()}


def _masses(candidates: Tensor, witnesses: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Belief in each class (q, k), and the set that leads where no class alone has mass (q, k).

    Only the classes that a row's witnesses name are told apart. If several others are in the base,
    one of them stands for all.
    """
    named = torch.zeros_like(base)
    for witness in witnesses.T:
        named |= candidates[witness]
    named &= base
    others = base & ~named
    named |= others & (others.sum(1, keepdim=True) == 1)
    sizes = named.sum(1) + (named != base).any(1)
    order = (2 * named.int() + base).argsort(1, descending=True)  # (q, k): those named come first
    belief, leading = torch.zeros_like(base, dtype=torch.float64), base.clone()
    for size in sorted(set(sizes[sizes <= LARGEST_TABLE].tolist())):
        at_once = NUMBERS_AT_ONCE // max(2**size, MOST_WITNESSES * size)
        for rows in torch.split((sizes == size).nonzero()[:, 0], at_once):
            classes = order[rows, :size]
            found = _by_table(candidates[witnesses[rows, :, None], classes[:, None]])
            belief[rows], leading[rows] = _apart(found, classes, named[rows], base[rows])
    many = (sizes > LARGEST_TABLE).nonzero()[:, 0]
    if len(many):
        belief[many], leading[many] = _by_list(candidates, witnesses[many], base[many])
    return belief, leading


def _by_table(said: Tensor) -> tuple[Tensor, Tensor]:
    """Belief and leading set of classes that all are in the base, (b, m, s) -> (b, s) each."""
    s = said.shape[-1]
    bit = torch.arange(s, device=said.device)
    mass = table_of(said, torch.ones_like(said[:, 0]))  # (2^s, b)
    leading = mass.argmax(0)  # the first of the heaviest: within all others
    return mass[1 << bit].T, (leading[:, None] >> bit & 1).bool()


def _apart(
    found: tuple[Tensor, Tensor], classes: Tensor, named: Tensor, base: Tensor
) -> tuple[Tensor, Tensor]:
    """What was found of some classes (b, s), for all k; a class that stands for others is none."""
    belief, leading = found
    own = named.gather(1, classes)
    whole = (leading & ~own).any(1, keepdim=True)  # others are only in the base
    alone = torch.zeros_like(base, dtype=torch.float64).scatter(1, classes, belief * own)
    return alone, torch.where(whole, base, torch.zeros_like(base).scatter(1, classes, leading))


def _by_list(candidates: Tensor, witnesses: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """As `_masses`, row by row on the host."""
    named = _numbers(candidates)
    belief = np.zeros(base.shape)
    leading = base.cpu().numpy().copy()
    rows = zip(witnesses.tolist(), _numbers(base), strict=True)
    for row, (at, within) in enumerate(rows):
        masses = masses_of((named[witness] for witness in at), within)
        alone = [met for met in masses if met.bit_count() == 1]
        for met in alone:
            belief[row, met.bit_length() - 1] = masses[met]
        if not alone:
            heaviest = max(masses, key=lambda met: (masses[met], -met))
            leading[row] = _classes(heaviest, base.shape[1])
    return torch.from_numpy(belief).to(base.device), torch.from_numpy(leading).to(base.device)


def _numbers(sets: Tensor) -> list[int]:
    """Sets (n, k) as numbers."""
    packed = np.packbits(sets.cpu().numpy(), axis=-1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _classes(number: int, k: int) -> NDArray[np.bool_]:
    """The set that a number stands for, (k,)."""
    packed = np.frombuffer(number.to_bytes(-(-k // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=k, bitorder="little").astype(bool)
