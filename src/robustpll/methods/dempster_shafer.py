"""Combined evidence of several witnesses, as exact masses of sets of classes.

A witness names a set of classes, gives it the mass 1/2, and the other half to the base, the set of
all possible classes. So the mass of a set is the share of groups of witnesses, among all 2^m
groups, whose sets have just this intersection. A witness that names nothing of the base, or all of
it, is ignored. By Yager's rule the mass of the empty set, where witnesses contradict each other,
goes to the base. Masses are multiples of 2^-m, which float64 represents without rounding.

Sets are written as numbers whose bit c stands for class c.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from robustpll.opinion import Opinion

MOST_WITNESSES = 52  # multiples of 2^-52 up to 1 fit the 53 bits of a float64
LARGEST_TABLE = 12  # with more named classes, sets that occur are listed instead of tabulated
NUMBERS_PER_BLOCK = 2**21  # masses of one block of rows; 16 MiB


def opinion_of(candidates: Tensor, witnesses: Tensor, base: Tensor) -> Opinion:
    """Return the opinion on the base's classes (q, k) by candidates (n, k) of witnesses (q, m).

    Belief in a class is the mass of the set of it alone; the rest is uncertainty. Probability is
    proportional to belief. If no class alone has mass, it is uniform on the set with the largest
    mass, and of several such sets on the smallest. That is unique: if X and Y have the largest
    mass, no less is on their intersection, or on the base if that is empty.

    >>> candidates = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.bool)
    >>> base = torch.ones(2, 3, dtype=torch.bool)
    >>> opinion = opinion_of(candidates, torch.tensor([[0, 1], [1, 2]]), base)
    >>> opinion.belief
    tensor([[0.0000, 0.2500, 0.0000],
            [0.0000, 0.0000, 0.5000]], dtype=torch.float64)
    >>> opinion.probability
    tensor([[0., 1., 0.],
            [0., 0., 1.]], dtype=torch.float64)
    """
    # Only named classes are distinguished. One of several others stands for all of them.
    named = torch.zeros_like(base)
    for witness in witnesses.T:
        named |= candidates[witness]
    named &= base
    others = base & ~named
    named |= others & (others.sum(1, keepdim=True) == 1)
    sizes = named.sum(1) + (named != base).any(1)
    order = (2 * named.int() + base).argsort(1, descending=True)  # (q, k): named classes first
    belief, leading = torch.zeros_like(base, dtype=torch.float64), base.clone()
    for size in sorted(set(sizes[sizes <= LARGEST_TABLE].tolist())):
        block = NUMBERS_PER_BLOCK // max(2**size, MOST_WITNESSES * size)
        for rows in torch.split((sizes == size).nonzero()[:, 0], block):
            classes = order[rows, :size]
            said = candidates[witnesses[rows, :, None], classes[:, None]]
            belief[rows], leading[rows] = _by_table(said, classes, named[rows], base[rows])
    many = (sizes > LARGEST_TABLE).nonzero()[:, 0]
    if len(many):
        belief[many], leading[many] = _by_list(candidates, witnesses[many], base[many])
    total = belief.sum(-1, keepdim=True)
    uniform = leading.double() / leading.sum(-1, keepdim=True)
    return Opinion(belief, torch.where(total > 0, belief / total, uniform), 1 - total[:, 0])


def table_of(said: Tensor, base: Tensor) -> Tensor:
    """Return masses of all 2^k sets, (2^k, q), from named sets (q, m, k) and the base (q, k).

    The commonality of a set, the mass of all sets that contain it, is 1/2 for each witness whose
    set does not, multiplied. Masses follow from it by the Moebius transform.

    >>> said = torch.tensor([[[1, 1, 0], [0, 1, 1]]], dtype=torch.bool)
    >>> table_of(said, torch.ones(1, 3, dtype=torch.bool))[:, 0]
    tensor([0.0000, 0.0000, 0.2500, 0.2500, 0.0000, 0.0000, 0.2500, 0.2500],
           dtype=torch.float64)
    """
    m, k = said.shape[1:]
    said = said & base[:, None]
    named = torch.where(said.any(-1, keepdim=True), said, base[:, None])  # the base says nothing
    bit = torch.arange(k, device=said.device)
    sets = (torch.cat([named, base[:, None]], 1).long() << bit).sum(-1).T  # (m + 1, q)
    containing = torch.zeros(2**k, len(said), dtype=torch.int32, device=said.device)
    containing.scatter_add_(0, sets, torch.ones_like(sets, dtype=torch.int32))
    _sum_over_supersets(containing, 1)
    # Of m + 1 sets including the base; a set that none contains is outside of the base.
    commonality = [0.0, *(0.5 ** (m + 1 - count) for count in range(1, m + 2))]
    mass = torch.tensor(commonality, dtype=torch.float64, device=said.device)[containing]
    _sum_over_supersets(mass, -1)
    conflict = mass[:1].clone()
    mass[0] = 0
    return mass.scatter_add_(0, sets[-1:], conflict)


def _sum_over_supersets(table: Tensor, sign: int) -> None:
    """Add up a table (2^k, q) over the supersets of each set, or undo it by -1; in place."""
    bit = 1
    while bit < len(table):
        pairs = table.view(-1, 2, bit, table.shape[1])  # sets without a class, and with it
        pairs[:, 0].add_(pairs[:, 1], alpha=sign)
        bit *= 2


def masses_of(said: Iterable[int], base: int) -> dict[int, float]:
    """Return the masses of all sets that have any, for one row and any number of classes.

    The time is proportional to the number of distinct intersections: few if few classes are named.

    >>> masses_of([0b011, 0b110], base=0b111)
    {7: 0.25, 3: 0.25, 6: 0.25, 2: 0.25}
    """
    counts = Counter(named & base for named in said)
    del counts[0], counts[base]
    groups = {base: 1}  # intersection -> how many groups of witnesses have it
    for named, times in counts.items():
        joining = 2**times - 1  # ways to add at least one of the witnesses that say the same
        for known, count in list(groups.items()):
            groups[known & named] = groups.get(known & named, 0) + joining * count
    groups[base] += groups.pop(0, 0)
    return {classes: count / 2 ** counts.total() for classes, count in groups.items()}


def _by_table(said: Tensor, classes: Tensor, named: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Belief and leading set (b, k), from sets (b, m, s) of the classes (b, s)."""
    bit = torch.arange(classes.shape[1], device=said.device)
    mass = table_of(said, torch.ones_like(said[:, 0]))  # (2^s, b)
    first = mass.argmax(0)  # the first of the heaviest is within all others
    leading = (first[:, None] >> bit & 1).bool()
    own = named.gather(1, classes)  # False: a class that stands for several
    belief = torch.zeros_like(base, dtype=torch.float64)
    belief.scatter_(1, classes, mass[1 << bit].T * own)
    whole = (leading & ~own).any(1, keepdim=True)  # only the base has the other classes
    return belief, torch.where(whole, base, torch.zeros_like(base).scatter(1, classes, leading))


def _by_list(candidates: Tensor, witnesses: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Belief and leading set (b, k), row by row on the host."""
    named, bases = _numbers(candidates), _numbers(base)
    belief, leading = np.zeros(base.shape), base.cpu().numpy().copy()
    for row, (indices, within) in enumerate(zip(witnesses.tolist(), bases, strict=True)):
        masses = masses_of((named[index] for index in indices), within)
        single = [classes for classes in masses if classes.bit_count() == 1]
        for classes in single:
            belief[row, classes.bit_length() - 1] = masses[classes]
        if not single:
            heaviest = max(masses, key=lambda classes: (masses[classes], -classes))
            leading[row] = [heaviest >> c & 1 for c in range(base.shape[1])]
    return torch.from_numpy(belief).to(base.device), torch.from_numpy(leading).to(base.device)


def _numbers(sets: Tensor) -> list[int]:
    """Sets (n, k) as numbers."""
    packed = np.packbits(sets.cpu().numpy(), axis=-1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
