"""Class names that may be spellings of one name, words for "no answer", and other names."""

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from robustpll._display import Displayed
from robustpll._files import delimiter_of, plain_text
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS, is_frame
from robustpll.labels.votes import Votes

SIGNS = "- -- --- ? ?? ??? . .. ... _ /"
WORDS = "#n/a <na> (blank) n/a na n.a. nan none (none) null nil missing unknown tbd k.a."
PLACEHOLDERS = frozenset([*SIGNS.split(), *WORDS.split()])
SHORTEST_WORD = 5  # letters of a word with a typing error: "cat" and "car" are two words
LONGEST_NAME = 40  # letters; longer names are compared by case and blanks alone
RARE = 5  # a correct name has at least this many times as many rows
FROM, TO = "from", "to"  # columns of a file of names
LARGEST = 2**26  # bytes of a file of names


@dataclass(frozen=True, repr=False)
class LabelVariants(Displayed):
    """Names that may be one class, with their counts, and words that may mean "no answer".

    The names of a group, a most frequent one first, differ in case, blanks, hyphens, underscores,
    Unicode form or a typing error. Blanks and hyphens may be missing: "New York" and "NewYork".
    """

    groups: tuple[dict[str, int], ...]
    placeholders: dict[str, int]

    @property
    def mapping(self) -> dict[str, str | None]:
        """A proposal: each name of a group becomes the first, and placeholders become None."""
        pairs = ((name, next(iter(names))) for names in self.groups for name in [*names][1:])
        return dict(pairs) | dict.fromkeys(self.placeholders)

    def __bool__(self) -> bool:
        return bool(self.groups or self.placeholders)


def label_variants(labels: Any) -> LabelVariants:
    """Find class names that may be spellings of one name. Nothing is merged.

    Parameters
    ----------
    labels : iterable of names or sets, DataFrame, dict of counts, Votes or Candidates
        The class names. Names that are not strings, and None, are left out.

    Examples
    --------
    >>> variants = label_variants(["Katze"] * 9 + ["katze ", "Katz", "Hund", "?"])
    >>> variants.groups
    ({'Katze': 9, 'katze ': 1, 'Katz': 1},)
    >>> variants.mapping
    {'katze ': 'Katze', 'Katz': 'Katze', '?': None}

    `Votes.renamed(variants.mapping)` applies the proposal.
    """
    if isinstance(labels, Votes):
        labels = labels.named_in()
    elif isinstance(labels, Candidates):
        counts = labels.matrix[labels.sizes < len(labels.classes)].sum(0)  # all classes: unknown
        labels = dict(zip(labels.classes.tolist(), counts.tolist(), strict=True))
    elif is_frame(labels):  # iterating would yield the names of its columns
        labels = labels.to_numpy().ravel().tolist()
    if not isinstance(labels, Mapping):
        sets = (row if isinstance(row, SETS) else [row] for row in labels)
        labels = Counter(chain.from_iterable(sets))
    rows = {name: count for name, count in labels.items() if isinstance(name, str) and name}
    placeholders: dict[str, int] = {}
    as_words: dict[str, str] = {}
    by_key: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        words = folded(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", folded(name)))
        key = re.sub(r"(?<!\d) | (?!\d)", "", words)  # "1 2" is not 12
        words = as_words.setdefault(key, words)
        (placeholders if key in PLACEHOLDERS else by_key[words])[name] = count
    correct = dict(_typing_errors({key: sum(names.values()) for key, names in by_key.items()}))
    for key in sorted(correct, key=lambda key: sum(by_key[key].values())):
        by_key[correct[key]] |= by_key.pop(key)
    groups = [names for names in by_key.values() if len(names) > 1]
    return LabelVariants((*sorted(groups, key=lambda names: -sum(names.values())),), placeholders)


def folded(name: str) -> str:
    """Return a name in one form of case, Unicode and blanks."""
    name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(name.split())


def renaming(
    mapping: Mapping[Any, Any], counts: Mapping[Any, int] | None = None
) -> Callable[[Any], Any]:
    """Return a function from class names to new ones, or to None for a gap.

    With the `counts` of names, those of one folded form then become the most frequent one.
    """
    totals, forms = Counter[str](), dict[str, str]()

    def rename(name: Any) -> Any:
        new = mapping.get(name, name)
        if not isinstance(new, str):
            return new
        return (forms.get(folded(new), new) if forms else new) or None

    for name, count in (counts or {}).items():
        if isinstance(new := rename(name), str):
            totals[new] += count
    for name, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
        forms.setdefault(folded(name), name)
    return rename


def read_names(rename: Any) -> dict[Any, Any]:
    """Return new names by old ones, from a mapping or a CSV file with columns `from` and `to`."""
    pairs = [*rename.items()] if isinstance(rename, Mapping) else []
    if rename is not None and not isinstance(rename, Mapping):
        path = Path(rename)
        if path.is_file() and path.stat().st_size > LARGEST:
            raise InputError(f"`rename`: {path} has more than {LARGEST:,} bytes. Shorten it.")
        try:
            text = plain_text(path).removeprefix("\ufeff")
            content, delimiter = io.StringIO(text, newline=""), delimiter_of(text)
            lines = csv.DictReader(content, delimiter=delimiter, strict=True)
            pairs = [(unguarded(line[FROM]), unguarded(line[TO])) for line in lines]
        except UnicodeError as error:
            raise InputError(f"`rename`: {path} is not UTF-8. Save it as CSV UTF-8.") from error
        except (OSError, csv.Error, KeyError, TypeError, AttributeError) as error:
            rule = f"must be a CSV file with the columns {FROM} and {TO}, such as --propose writes"
            raise InputError(f"`rename`: {path} {rule} ({error}).") from error
    names = dict(pairs)
    for old, new in pairs:
        if names[old] != new:
            raise InputError(f"`rename` names {old!r} twice, with different names. Delete one.")
        if new in names and names[new] != new:
            fault = f"`rename` makes {old!r} to {new!r}, which is renamed, too"
            raise InputError(f"{fault}. Write the last name for both.")
    return {old: new if new != "" else None for old, new in names.items()}


def unguarded(name: str) -> str:
    """Remove the apostrophe that protects spreadsheets; see `tables.source.safe_cell`."""
    is_guarded = name.startswith("'") and name.lstrip("'").startswith((*"=+-@＝＋－＠\t\r\n",))
    return name[1:] if is_guarded else name


def _typing_errors(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield rare names and the frequent name they resemble, in linear time."""
    # Two names that differ by one letter, or by two swapped neighbours, become equal without one
    # letter of one or both. The letters must be in long words, and the names without digits.
    names = [name for name in rows if len(name) <= LONGEST_NAME and not re.search(r"\d", name)]
    most_frequent: dict[str, str] = {}  # of the names that become equal
    for name in sorted(names, key=lambda name: -rows[name]):
        keys = [name]
        for word in re.finditer(r"[^\W_]+", name):
            if len(word[0]) >= SHORTEST_WORD:
                keys += [name[:place] + name[place + 1 :] for place in range(*word.span())]
        for other in {most_frequent.setdefault(key, name) for key in keys}:
            is_rare = rows[other] >= max(1, RARE * rows[name])
            # "stable" and "tables" become equal, too, but differ in all letters
            differing = sum(a != b for a, b in zip(name, other, strict=False))
            if is_rare and (differing <= 2 or len(name) != len(other)):
                yield name, other
