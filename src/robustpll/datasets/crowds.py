"""Answers of real crowds: about rows with features or texts, in numpy files; or alone, in CSV."""

import io
import zipfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import damage_explained, read_content, unpacked_limit
from robustpll.datasets.catalog import Entry, paths_of
from robustpll.datasets.dataset import Dataset, Split
from robustpll.errors import InputError
from robustpll.estimator.reduction import Reduction
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import MOST_CELLS, normalized, votes_for


def load(entry: Entry) -> Dataset:
    """Read a crowd; training rows have answers, test rows are those of the official split.

    The arrays are x_train, x_test, y_train, y_test and votes (rows, annotators), -1 for none. Texts
    in lines, text_train and text_test, may replace x_train and x_test.
    """
    contents = {path: read_content(path) for path in paths_of(entry)}
    texts = {
        path.name.partition(".")[0].removeprefix("text_"): content.decode(errors="replace")
        for path, content in contents.items()
        if path.name.startswith("text_")
    }
    files = [file for file in contents.items() if not file[0].name.startswith("text_")]
    arrays = dict(chain(*(arrays_of(*file).items() for file in files)))
    if texts:  # as `text` of the classifiers does
        lines = {part: text.removesuffix("\n").split("\n") for part, text in texts.items()}
        reduction = Reduction.of_texts(lines["train"])
        arrays |= {f"x_{part}": reduction.numbers(rows) for part, rows in lines.items()}
    other = InputError(f"{next(iter(contents))} has other arrays than {entry.title}.")
    try:
        parts = [(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
        features = np.concatenate([x for x, _ in parts]).astype(np.float64)
        labels = np.concatenate([y for _, y in parts]).astype(np.int64)
        votes, k = arrays["votes"].astype(np.int64), entry.classes
        sizes = {len(votes), len(parts[0][0]), len(parts[0][1])}
        is_fitting = len(sizes) == 1 and len(features) == len(labels) and votes.ndim == 2
        is_fitting = is_fitting and bool(((labels >= 0) & (labels < k)).all() & (votes < k).all())
    except (KeyError, IndexError, ValueError) as error:
        raise other from error
    if not is_fitting:
        raise other
    answers = np.full((len(labels), votes.shape[1]), -1)
    answers[: len(votes)] = votes.clip(min=-1)
    return Dataset.of(
        entry,
        [*contents.values()],
        features=features,
        labels=labels,
        candidates=candidates_of(entry, answers),
        official=Split(np.arange(len(votes)), np.arange(len(votes), len(labels))),
    )


def load_votes(entry: Entry) -> Dataset:
    """Read answers without features, and true classes; all rows are training rows.

    The CSV files have the columns question, worker, answer; and question, truth.
    """
    import pandas as pd

    kinds: Any = {"question": str, "worker": str, "answer": np.int64, "truth": np.int64}
    paths = paths_of(entry)
    contents = [read_content(path) for path in paths]
    try:
        told, known = (
            pd.read_csv(io.BytesIO(content), dtype=kinds, keep_default_na=False)
            for content in contents
        )
        rows = pd.Index(known["question"])
        row, (worker, workers) = rows.get_indexer(told["question"]), pd.factorize(told["worker"])
        answer, labels = told["answer"].to_numpy(), known["truth"].to_numpy()
    except (KeyError, ValueError, pd.errors.InvalidIndexError) as error:  # questions that repeat
        raise InputError(f"{paths[0]} is not the table of {entry.title}: {error}") from error
    given = np.concatenate([answer, labels])
    is_fitting = bool((row >= 0).all() & (given >= 0).all() & (given < entry.classes).all())
    is_fitting = is_fitting and not told.duplicated(["question", "worker"]).any()
    if not is_fitting or not 0 < len(rows) * len(workers) <= MOST_CELLS:
        raise InputError(f"{paths[0]} has other answers than {entry.title}. Get it again.")
    answers = np.full((len(rows), len(workers)), -1)
    answers[row, worker] = answer
    return Dataset.of(
        entry,
        contents,
        features=np.zeros((len(rows), 1)),
        labels=labels,
        candidates=candidates_of(entry, answers),
        official=Split(np.arange(len(rows)), np.arange(0)),
        notes=("There are only answers: the one feature is 0 in all rows.",),
    )


def arrays_of(path: Path, content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of numpy, by name."""
    with damage_explained(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > unpacked_limit(len(content)):
            raise InputError(f"{path} unpacks to {size:,} bytes: too many for its size.")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def candidates_of(entry: Entry, answers: NDArray[np.int64]) -> Candidates:
    """Return the classes that somebody named, by their shares; all classes without an answer."""
    k = entry.classes
    prior = normalized(votes_for(answers, k), 1 / k).astype(np.float32)
    return Candidates(prior > 0, np.array(entry.class_names or range(k)), prior, answers)
