"""CIFAR-10 in both forms, what is no CIFAR-10, and what people said about it."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from robustpll import InputError, load_dataset
from robustpll.datasets import cifar
from robustpll.datasets.catalog import CATALOG, checksum, version_here
from robustpll.datasets.noise import Independent
from robustpll.datasets.problem import Problem
from robustpll.measures.people import agreement_with

ARCHIVE = "cifar10/cifar-10-binary.tar.gz"
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def write_archive(path: Path, contents: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    with tarfile.open(path, "w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("name", ["cifar10", "cifar10n"])
def test_a_missing_file_says_where_it_comes_from(name: str, data: Path) -> None:
    with pytest.raises(InputError, match=r"datasets get cifar10|noisylabels") as error:
        load_dataset(name)
    assert ARCHIVE in str(error.value)
    if name == "cifar10n":
        assert "cifar10n/votes.npz must hold" in str(error.value)


@pytest.mark.parametrize("contents", [{}, dict.fromkeys(BATCHES, b"\x07" * 3073)])
def test_another_archive_is_refused(contents: dict[str, bytes], data: Path) -> None:
    write_archive(data / ARCHIVE, contents)
    with pytest.raises(InputError, match="does not hold CIFAR-10 as published"):
        load_dataset("cifar10")


def test_damaged_or_missing_sheets_are_refused(data: Path) -> None:
    folder = data / "cifar10"
    folder.mkdir()
    np.savez(folder / "labels.npz", train=np.zeros(50_000, np.uint8), test=np.zeros(10, np.uint8))
    with pytest.raises(InputError, match=r"labels\.npz cannot be read"):
        load_dataset("cifar10")
    labels = {"train": np.zeros(50_000, np.uint8), "test": np.zeros(10_000, np.uint8)}
    np.savez(folder / "labels.npz", **labels)
    with pytest.raises(InputError, match=r"train_00\.webp cannot be read: .*No such file"):
        load_dataset("cifar10")
    (folder / "train_00.webp").write_bytes(b"RIFF but no picture")
    with pytest.raises(InputError, match=r"train_00\.webp cannot be read"):
        load_dataset("cifar10")
    Image.new("RGB", (320, 32)).save(folder / "train_00.webp", lossless=True)
    with pytest.raises(InputError, match=r"train_00\.webp cannot be read: cannot reshape"):
        load_dataset("cifar10")


# The true files


@pytest.fixture(scope="module")
def pictures() -> Any:
    return load_dataset("cifar10")


@pytest.mark.data
def test_the_pictures_are_the_published_ones(pictures: Any) -> None:
    """Their MD5 sums are checked in loading."""
    entry = CATALOG["cifar10"]
    assert pictures.features.shape == (entry.rows, entry.features)
    assert pictures.features.dtype == np.uint8
    assert pictures.content == version_here("cifar10") == ""
    assert np.bincount(pictures.labels).tolist() == [6000] * 10
    train, test = pictures.split(seed=4)
    assert (train == np.arange(50_000)).all()
    assert (test == np.arange(50_000, 60_000)).all()
    first = pictures.features[0].reshape(3, 32, 32)
    assert (first[:, 0, 0].tolist(), pictures.labels[0]) == ([59, 62, 63], 6)  # a frog


@pytest.mark.data
def test_a_folder_with_the_archive_alone_gives_the_same(pictures: Any, data: Path) -> None:
    rows = np.column_stack([pictures.labels.astype(np.uint8), pictures.features])
    parts = dict(zip(BATCHES, np.split(rows, 6), strict=True))
    write_archive(data / ARCHIVE, {name: part.tobytes() for name, part in parts.items()})
    again = load_dataset("cifar10")
    assert (again.features == pictures.features).all()
    assert again.content == ""
    assert again.people is None
    parts["test_batch.bin"][7, 99] ^= 1  # one bit
    write_archive(data / ARCHIVE, {name: part.tobytes() for name, part in parts.items()})
    with pytest.raises(InputError, match="as published"):
        load_dataset("cifar10")


@pytest.mark.data
def test_votes_are_those_of_three_people_about_training_rows() -> None:
    dataset = load_dataset("cifar10n")
    y, labels = dataset.candidates, dataset.labels
    assert y is not None
    assert labels is not None
    assert y.answers is not None
    train, test = dataset.split(0)
    assert y.answers.shape == (60_000, 3)
    assert (y.answers[test] == -1).all()
    assert y.matrix[test].all()
    right = y.answers[train] == labels[train, None]
    assert right.mean() == pytest.approx(0.823, abs=5e-4)
    assert y.sizes[train].mean() == pytest.approx(1.457, abs=5e-4)
    assert y.matrix[train, labels[train]].mean() == pytest.approx(0.979, abs=5e-4)


@pytest.mark.data
def test_other_answers_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.zeros((60_000, 3_073), np.uint8)
    monkeypatch.setattr(cifar, "_rows", lambda path: rows)
    monkeypatch.setattr(cifar, "_checksum_of", lambda rows: CATALOG["cifar10"].files[0].sha256)
    write_archive(data / ARCHIVE, {})
    (data / "cifar10n").mkdir()
    for votes in (np.zeros((49_999, 3)), np.full((50_000, 3), 10), np.zeros(50_000)):
        np.savez(data / "cifar10n" / "votes.npz", votes=votes)
        with pytest.raises(InputError, match=r"votes\.npz cannot be read"):
            load_dataset("cifar10n")


@pytest.mark.data
def test_what_people_said_about_test_pictures(pictures: Any) -> None:
    people = pictures.people
    assert (people.rows == np.arange(50_000, 60_000)).all()
    assert people.counts.sum() == 511_000
    assert (people.counts.sum(-1).min(), people.counts.sum(-1).max()) == (47, 63)
    truth = pictures.labels[people.rows]
    assert (people.counts.argmax(-1) == truth).mean() == pytest.approx(0.992, abs=5e-4)
    assert people.possible.sum(-1).mean() == pytest.approx(2.669, abs=5e-4)
    possible = people.possible[np.arange(len(people.asked)), truth[people.asked]]
    assert possible.mean() == pytest.approx(0.957, abs=5e-4)
    # whoever predicts what people say agrees with them
    shares = people.counts / people.counts.sum(-1, keepdims=True)
    flat = np.random.default_rng(0).dirichlet(np.full(10, 1e4), 10_000)
    best, chance = (agreement_with(people, p) for p in (shares, flat))
    assert best["rank_correlation"] == pytest.approx(1)
    assert best["disagreement"] > 0.99
    assert best["cross_entropy"] < chance["cross_entropy"] == pytest.approx(np.log(10), abs=1e-3)
    assert best["possible"] > 0.95


@pytest.mark.data
def test_colours_stay_bytes_and_are_scaled_by_white(pictures: Any) -> None:
    problem = Problem.of(pictures, Independent(0.3), (0, 1), "cpu")
    rows = problem.task.rows
    assert rows.pool.dtype == torch.uint8
    assert rows.shape == (3, 32, 32)
    x = rows.x(torch.tensor([[0], [0]]))
    expected = torch.from_numpy(pictures.features[:1].reshape(1, 3, 32, 32) / 255).float()
    torch.testing.assert_close(x[0], expected)
    sizes = problem.task.candidates.sum(-1).double()
    assert ((sizes.mean(-1) - 3.7).abs() < 0.02).all()


@pytest.mark.data
def test_a_download_is_kept_if_it_holds_the_published_rows(pictures: Any, tmp_path: Path) -> None:
    """The name of an unfinished download does not matter."""
    rows = np.column_stack([pictures.labels.astype(np.uint8), pictures.features])
    parts = dict(zip(BATCHES, np.split(rows, 6), strict=True))
    path = tmp_path / "cifar-10-binary.tar.gz.part"
    write_archive(path, {name: part.tobytes() for name, part in parts.items()})
    entry = CATALOG["cifar10"]
    assert checksum(entry, path) == entry.files[0].sha256
    write_archive(path, {name: part.tobytes() for name, part in [*parts.items()][1:]})
    assert checksum(entry, path) == ""
