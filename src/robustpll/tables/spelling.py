"""Class names that look like slips: one name written in several ways, and words for "no answer"."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SIGNS = ("-", "--", "---", "?", "??", "???", ".", "..", "...", "_", "/", "#n/a", "<na>", "(blank)")
WORDS = ("n/a", "na", "n.a.", "nan", "none", "(none)", "null", "nil", "missing", "tbd", "k.a.")
PLACEHOLDERS = frozenset((*SIGNS, *WORDS))
FEWEST_LETTERS = 5  # of a word in which one letter may be a slip: "cat" and "car" are two words
MOST_LETTERS = 40  # of a name: longer ones are compared by case and blanks alone
RARE = 5  # times as many rows has the name that a slip is a slip of
MOST_NAMES = 10_000  # to look for slips among


@dataclass(frozen=True)
class Spellings:
    """What looks odd about class names; each name comes with the number of its rows.

    >>> rows = {"Katze": 90, "katze ": 2, "Katz": 1, "Hund": 60, "?": 3, "a1": 9, "a2": 1}
    >>> spellings = Spellings.of(rows)
    >>> spellings.groups, spellings.placeholders
    (({'Katze': 90, 'katze ': 2, 'Katz': 1},), {'?': 3})
    """

    groups: tuple[dict[str, int], ...]  # names that may be one class; the most frequent first
    placeholders: dict[str, int]

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> "Spellings":
        """Two rules join names; nothing is merged.

        Names are joined that differ in case, in blanks, in hyphens or underscores between words, or
        in how Unicode writes a letter; and
        names that differ in one letter, or by two neighbours that are swapped, if that is in a word
        of at least `FEWEST_LETTERS` letters, neither name has a digit in it, and one has at least
        `RARE` times as many rows as the other: slips are rare.
        """
        placeholders = {name: count for name, count in rows.items() if _key(name) in PLACEHOLDERS}
        by_key: dict[str, dict[str, int]] = defaultdict(dict)
        for name, count in rows.items():
            if name not in placeholders:
                by_key[_key(name)][name] = count
        totals = {key: sum(counts.values()) for key, counts in by_key.items()}
        target = dict(_slips(totals))
        joined: dict[str, dict[str, int]] = defaultdict(dict)
        for key in sorted(by_key, key=lambda key: -totals[key]):
            joined[_end(key, target)] |= by_key[key]
        groups = [
            dict(sorted(names.items(), key=lambda one: (-one[1], one[0])))
            for names in joined.values()
            if len(names) > 1
        ]
        return cls(tuple(sorted(groups, key=lambda names: -sum(names.values()))), placeholders)


def _key(name: str) -> str:
    """The name without what people do not mean by it.

    >>> _key("  KATZE\\u00a0 gross "), _key("ﬁsch"), _key("hot-dog"), _key("A-")
    ('katze gross', 'fisch', 'hot dog', 'a-')
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", plain).split())


def _slips(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of a rare name and the frequent one it is a slip of; linear in the number of names."""
    names = [name for name in rows if len(name) <= MOST_LETTERS and not re.search(r"\d", name)]
    if len(names) > MOST_NAMES:
        return
    alike: dict[str, str] = {}  # a name with one letter blotted out -> the most frequent such name
    for name in sorted(names, key=lambda name: rows[name]):
        alike |= dict.fromkeys(_blotted(name), name)
    for name in names:
        others = {alike[blotted] for blotted in _blotted(name)}  # another letter
        others |= {other for other in _shorter_and_swapped(name) if other in rows}
        for other in others:
            rare, frequent = sorted((name, other), key=lambda one: rows[one])
            if rows[frequent] >= max(1, RARE * rows[rare]):
                yield rare, frequent


def _blotted(name: str) -> Iterator[str]:
    return (f"{name[:at]}\0{name[at + 1 :]}" for at in _places(name))


def _shorter_and_swapped(name: str) -> Iterator[str]:
    for at in _places(name):
        yield name[:at] + name[at + 1 :]
        yield name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :]


def _places(name: str) -> Iterator[int]:
    """Where a slip may be: in a long word."""
    for word in re.finditer(r"[^\W_]+", name):
        if len(word[0]) >= FEWEST_LETTERS:
            yield from range(word.start(), word.end())


def _end(key: str, target: Mapping[str, str]) -> str:
    """The name that a slip is a slip of, and so on; each has more rows than the one before."""
    while key in target:
        key = target[key]
    return key
