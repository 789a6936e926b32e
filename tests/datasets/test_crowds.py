"""Real crowds: arrays of answers, files that are damaged or dangerous, and the true files."""

import gzip
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robustpll import InputError, load_dataset
from robustpll.datasets.catalog import CATALOG
from robustpll.datasets.mat import add
from robustpll.datasets.problem import Problem
from robustpll.estimator.reduction import Reduction
from robustpll.methods import Wrapped

TEXTS = ["a superb film", "dull and flat", "superb music, great cast", "a dull plot"]
CROWDS = [name for name, entry in CATALOG.items() if entry.kind in ("crowds", "votes")]
ANSWERS = "question,worker,answer\nq2,9,1\nq1,9,0\nq1,8,1\nq2,8,1\n"
TRUTH = "question,truth\nq1,0\nq2,1\nq3,1\n"


def arrays(**changed: Any) -> dict[str, Any]:
    random = np.random.default_rng(0)
    made = {f"x_{part}": random.random((n, 3)) for part, n in (("train", 40), ("test", 5))}
    made |= {f"y_{part}": random.integers(8, size=n) for part, n in (("train", 40), ("test", 5))}
    votes = np.where(random.random((40, 4)) < 0.6, made["y_train"][:, None], -1)
    votes[:, 0] = made["y_train"]
    return made | {"votes": votes} | changed


@pytest.fixture
def written(data: Path) -> Any:
    def write(content: bytes | dict[str, Any]) -> Path:
        path = data / "labelme-crowd" / "labelme.npz"
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, dict):
            buffer = io.BytesIO()
            np.savez(buffer, **content)
            content = buffer.getvalue()
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("ending", ["", "\n"])
def test_texts_become_numbers_that_the_training_texts_decide(data: Path, ending: str) -> None:
    folder = data / "sentiment-crowd"
    folder.mkdir()
    known = {"votes": [[0, 1], [1, -1], [0, 0], [1, 1]], "y_train": [0, 1, 0, 1], "y_test": [1, 0]}
    np.savez(folder / "answers.npz", **known)
    for part, lines in (("train", TEXTS), ("test", ["dull music", "\u2028 unheard"])):
        with gzip.open(folder / f"text_{part}.txt.gz", "wb") as file:
            file.write(("\n".join(lines) + ending).encode())
    dataset = load_dataset("sentiment-text")
    expected = Reduction.of_texts(TEXTS).numbers([*TEXTS, "dull music", ""])
    np.testing.assert_allclose(dataset.features, expected)
    assert dataset.candidates is not None
    assert dataset.candidates.sizes[:4].tolist() == [2, 1, 1, 1]
    with gzip.open(folder / "text_test.txt.gz", "wb") as file:
        file.write(b"only one")
    with pytest.raises(InputError, match="has other arrays than Sentiment TF-IDF"):
        load_dataset("sentiment-text")


def test_training_rows_have_answers_and_test_rows_have_none(written: Any) -> None:
    made = arrays()
    written(made)
    dataset = load_dataset("labelme-crowd")
    train, test = dataset.split(seed=3)
    y = dataset.candidates
    assert y is not None
    assert y.answers is not None
    assert (y.answers[train] == made["votes"]).all()
    assert (y.answers[test] == -1).all()
    assert y.matrix[test].all()
    assert (dataset.features[test] == made["x_test"]).all()
    assert len(dataset.content) == 16  # not the usual file
    problem = Problem.of(dataset, None, (0, 1), "cpu")
    for labels in ("one_coin", "dawid_skene"):
        method = Wrapped("logistic_regression", labels=labels)  # type: ignore[arg-type]
        fitted = method.fit(problem.task)
        assert (fitted.label_weights.argmax(-1) == problem.train_labels).all()


def test_files_that_are_no_crowds_are_refused(written: Any, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    fewer = arrays()
    del fewer["votes"]
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", bytes(2**27))
    for content in (
        fewer,
        arrays(votes=np.full((60, 4), 0)),  # more rows than there are
        arrays(votes=np.full((40, 4), 8)),  # a class that there is not
        arrays(x_test=np.zeros((5, 4))),
        arrays(x_test=np.zeros((6, 3))),  # one row too many
        arrays(y_test=np.full(5, 8)),
        arrays(votes=np.array([Evil()], dtype=object)),
        pickle.dumps(Evil()),
        b"PK\3\4 but no archive",
        bomb.getvalue(),
    ):
        written(content)
        with pytest.raises(InputError):
            load_dataset("labelme-crowd")
    assert not (tmp_path / "executed").exists()


def test_a_missing_file_says_where_it_comes_from(data: Path) -> None:
    for read in (
        lambda: load_dataset("labelme-crowd"),
        lambda: add(CATALOG["labelme-crowd"], data, print),
    ):
        with pytest.raises(InputError, match="fprodrigues"):
            read()


def write_votes(data: Path, answers: str, truth: str) -> None:
    folder = data / "votes-only"
    folder.mkdir(exist_ok=True)
    for part, text in (("answers", answers), ("truth", truth)):
        (folder / f"bluebirds_{part}.csv.gz").write_bytes(gzip.compress(text.encode()))


def test_answers_alone_have_no_features_and_no_test_rows(data: Path) -> None:
    write_votes(data, ANSWERS, TRUTH)
    dataset = load_dataset("bluebirds-votes")
    assert dataset.candidates is not None
    assert dataset.candidates.answers is not None
    assert dataset.candidates.answers.tolist() == [[0, 1], [1, 1], [-1, -1]]
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1, 1]
    assert dataset.features.tolist() == [[0.0], [0.0], [0.0]]
    assert [len(part) for part in dataset.split(seed=5)] == [3, 0]
    assert "only answers" in dataset.notes[0]


@pytest.mark.parametrize(
    ("answers", "truth"),
    [
        (ANSWERS.replace("answer", "reply"), TRUTH),
        (ANSWERS.replace("q1,8,1", "q1,8,2"), TRUTH),  # a class that there is not
        (ANSWERS.replace("q1,8,1", "q1,8,-1"), TRUTH),
        (ANSWERS.replace("q1,8,1", "q1,8,0.5"), TRUTH),
        (ANSWERS.replace("q1,8,1", "q1,8,"), TRUTH),
        (ANSWERS.replace("q1,8", "q1,9"), TRUTH),  # two answers of one
        (ANSWERS.replace("q1", "q4"), TRUTH),  # a question without truth
        (ANSWERS, TRUTH.replace("q3", "q1")),
        (ANSWERS, TRUTH.replace("q3,1", "q3,2")),
        ("question,worker,answer\n", "question,truth\n"),
        ("", ""),
    ],
)
def test_tables_of_other_answers_are_refused(data: Path, answers: str, truth: str) -> None:
    write_votes(data, answers, truth)
    with pytest.raises(InputError, match="bluebirds_answers"):
        load_dataset("bluebirds-votes")


@pytest.mark.data
@pytest.mark.parametrize("name", [n for n in CROWDS if n != "cifar10n-lite0"])  # is computed
def test_the_files_hold_what_the_catalog_says(name: str) -> None:
    dataset, entry = load_dataset(name), CATALOG[name]
    assert dataset.features.shape == (entry.rows, entry.features)
    assert dataset.content == ""
    assert dataset.candidates is not None
    sizes = dataset.candidates[dataset.split(0).train].sizes
    assert sizes.mean() == pytest.approx(entry.candidates, abs=0.01)
