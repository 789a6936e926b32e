"""`robustpll fit`, `compare`, `predict`, `export`: train on a table, compare, apply, convert."""

import codecs
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from typer import BadParameter, Option

from robustpll._files import recorded, writing
from robustpll.cli import tables as shared
from robustpll.cli.messages import as_options, errors_as_messages, refuse_unwritable, say
from robustpll.errors import InputError, ModelFileError, counted, is_share, some_of

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.tables.read import Piece, Table, TableInPieces
    from robustpll.tables.stream import ParquetRows

MIN_HELD_OUT = 30  # rows, for decisions and prediction sets
ERROR, COVERAGE = 0.05, 0.9  # defaults of decisions and prediction sets
MEASURES = ("probability", "belief", "uncertainty", "entropy")
COLUMNS = ("label", *MEASURES, "prediction_set", "decision", "reason")
# how files begin that these commands may replace
MODEL_START = rb'.{8}\{"__metadata__":\{"robustpll'  # after the length of safetensors' header
ACCEPT, REVIEW = "accept", "review"
BAD = "does not parse"
TOO_FAR = "a number is too far from the training rows"
PREDICTIONS_START = rb"(?:\xef\xbb\xbf)?(?:line|row)(.)(?:[^\n]*\1)?"  # with any delimiter
PREDICTIONS_START += rb"\1".join(name.encode() for name in COLUMNS) + rb"\n"
NO_THRESHOLD = (
    f"no {MIN_HELD_OUT} rows were held out to fix a threshold. Use robustpll fit, or, in Python, "
    "call calibrate_decisions before save"
)
MAX_NUMBERS = 2**22  # rows of a piece times classes or features: 32 MiB in float64
STREAM = "Read Parquet or Arrow in pieces: any size."
MOST_HELD_OUT = 20_000  # rows, which are in memory
ROW_VISITS = 10**8  # by which the number of epochs is chosen, from 2 to 200
FORMS = ("candidates", "separator", "votes", "indicators")


@dataclass(frozen=True)
class StreamOptions:
    """Whether rows are streamed, and where."""

    stream: Annotated[bool, Option("--stream", help=STREAM)] = False
    scratch: Annotated[Path | None, Option(help="Folder of scratch files of --stream.")] = None


@shared.with_options
def fit(
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="The model file to write, such as model.pll.")],
    columns: shared.ColumnOptions,
    file: shared.FileOptions,
    training: shared.TrainingOptions,
    keeping: shared.CheckpointOptions,
    network: Annotated[shared.Text, Option(help="Network of the method: small or mlp.")] = None,
    held_out: Annotated[float, shared.share_option(help="Share of rows to evaluate on.")] = 0.2,
    coverage: Annotated[float, Option(help="Coverage of the prediction sets.")] = COVERAGE,
    no_baselines: shared.NoBaselines = False,
    streaming: StreamOptions,
) -> None:
    """Train on a table with candidate labels, and write the model to a file.

    A random part of the rows is held out. It is used to evaluate the model, and to calibrate which
    of its predictions are accepted. Two baselines learn the same rows, to compare with; --stream
    has none, and its default is robust_pll.
    """
    columns.check_form(path)
    if not 0 <= held_out < 1 or not 0 < coverage < 1:
        raise BadParameter("--held-out and --coverage must be shares below 1.")
    if columns.errors is not None and columns.errors.resolve() == out.resolve():
        raise BadParameter(f"--errors and --out are the same file, {out}.")
    if streaming.stream:
        _refuse_unused(file, keeping)
        rest: Any = {"network": network, "held_out": held_out}
        _add_decisions(out, coverage, *_stream_fit(path, out, columns, training, streaming, **rest))
        return
    with errors_as_messages():
        model, decisions = training.model(network), training.decisions or []
        model.set_params(text=tuple(columns.text or ()))
        refuse_unwritable(out, (path, *decisions), MODEL_START, "a model of robustpll")
    whole = shared.read(path, columns, file, cells=bool(decisions))
    with errors_as_messages(stopped="No model is written."):
        from sklearn.utils import _safe_indexing

        from robustpll.clean.decisions_file import apply_decisions

        _refuse_added(whole)
        decided = apply_decisions(whole, decisions, columns.row_id)
        table, y, X = decided.table, decided.candidates, decided.table.X
        others = table.features.drop(columns=[*model.text])
        train, test = split_rows(others, y, held_out, training.seed)
        _refuse_too_few(coverage, len(test))
        learn = partial(keeping.fit, model, _safe_indexing(X, train), y[train])
        seconds = shared.fit_and_save(model, out, learn, reading=asdict(table.reading))
    typer.echo(f"{path}: {len(whole):,} rows, {shared.input_of(table)}, {shared.summary_of(y)}")
    typer.echo("\n".join([f"decided by a person: {decided.labelled.sum():,}", *decided.messages()]))
    learners = f", {model.fitted_.learners}," if hasattr(model.fitted_, "learners") else ""
    title = f"{model.resolved_method().title}{learners} learned from {len(train):,} rows"
    typer.echo(f"{title} in {seconds:,.1f} s. The model is {out}.")
    truths = None if table.truth is None else table.truth[test]
    _add_decisions(out, coverage, model, (_safe_indexing(X, test), y[test]), truths)
    if not no_baselines:
        with errors_as_messages(stopped=f"{out} is complete; it is not compared with baselines."):
            about: Any = {"seed": training.seed, "seconds": seconds}
            typer.echo(_compared(model, table, y, (train, test), **about))
    typer.echo(f"For predictions: robustpll predict {out} TABLE --out FILE.csv")


def _refuse_unused(*groups: Any, used: tuple[str, ...] = (), **options: Any) -> None:
    """Raise BadParameter if an option is passed that streaming does not use."""
    passed = [name for name, value in options.items() if value]
    for group in groups:
        unused = (option for option in fields(group) if option.name not in used)
        passed += [o.name for o in unused if getattr(group, o.name) != o.default]
    if passed:
        raise BadParameter(f"--stream does not take --{passed[0].replace('_', '-')}.")


def _stream_fit(
    path: Path,
    out: Path,
    columns: shared.ColumnOptions,
    training: shared.TrainingOptions,
    streaming: StreamOptions,
    *,
    network: str | None,
    held_out: float,
) -> tuple[Any, Any, Any]:
    """Fit and save a model; return it with held-out rows (X, y), and their true labels."""
    others = ("truth", "ignore", "id", "method", "epochs", "device", "seed")
    _refuse_unused(columns, training, used=(*FORMS, *others))
    with errors_as_messages(stopped="No model is written; scratch files are removed."):
        from robustpll import ParquetRows
        from robustpll.tables.source import check_names

        form: Any = {name: getattr(columns, name) for name in FORMS}
        rows = ParquetRows(path, **form, scratch=streaming.scratch)
        unused = {*columns.ignored(), columns.truth}
        check_names(rows.columns, unused - {None})
        rows = replace(rows, features=[name for name in rows.names if name not in unused])
        if training.method == "auto":
            training = replace(training, method="robust_pll")
        if training.epochs is None:
            training = replace(training, epochs=min(200, max(2, ROW_VISITS // rows.count())))
        model = training.model(network)
        refuse_unwritable(out, (path,), MODEL_START, "a model of robustpll")
        share = min(held_out, MOST_HELD_OUT / max(1, rows.count()))
        train, test = rows.split(share, training.seed) if share else (rows, None)
        # read before the training: a bad row among them must not end the command after it
        known_to = None if test is None else _held_out_rows(test, columns.truth)
        seconds = shared.fit_and_save(model, out, partial(model.fit, train))
    title = f"{model.resolved_method().title}, {len(model.history_['loss'])} epochs,"
    counts = f"{len(model.labels_):,} rows of {counted(len(rows.names), 'feature')}"
    typer.echo(f"{title} learned from {counts} in {seconds:,.1f} s. The model is {out}.")
    return model, *(((None, []), None) if known_to is None else known_to(model))


def _held_out_rows(rows: "ParquetRows", truth: str | None) -> Callable[[Any], tuple[Any, Any]]:
    """Read rows; return a function from the model to (X, y) and their true labels.

    It leaves out rows with classes that training did not see.
    """
    import pyarrow as pa

    from robustpll.labels.candidates import Candidates
    from robustpll.labels.spelling import renaming
    from robustpll.tables.labels import true_labels
    from robustpll.tables.stream import joined

    pieces, true = [*rows.pieces()], None
    names = set[Any]().union(*(piece.classes for piece in pieces))
    if truth is not None:
        cells = pa.concat_tables(part for part, _ in rows.batches([truth])).to_pandas()
        true = true_labels(cells[truth], np.unique([*names]), renaming({}))

    def known_to(model: Any) -> tuple[Any, Any]:
        known = model.classes_.tolist()
        X, y = joined(rows.names, pieces, np.unique([*known, *names]))
        is_known = ~y.matrix[:, ~np.isin(y.classes, known)].any(-1)
        if unknown := sorted(names.difference(known)):
            rows_out = counted((~is_known).sum(), "held-out row")
            say(f"{rows_out} left out, with classes no other row has ({some_of(unknown)}).")
        y = Candidates.of(y[is_known], classes=model.classes_)
        return (X[is_known], y), None if true is None else true[is_known]

    return known_to


def _stream_predict(
    model: Any, path: Path, out: Path, *, keep: list[str], error: float, inputs: tuple[Path, ...]
) -> None:
    """Predict the rows of a Parquet or Arrow file or folder, and write Parquet."""
    from robustpll import ParquetRows
    from robustpll.tables.stream import is_file_of_predictions

    if out.suffix.lower() != ".parquet":
        raise BadParameter(f"--stream writes Parquet: {out} must end in .parquet.")
    is_ours = out.is_file() and is_file_of_predictions(out)
    refuse_unwritable(out, inputs, rb"PAR1" if is_ours else rb"(?!)", "a file of predict --stream")
    count = ParquetRows(path).write_predictions(model, out, error=error, keep=keep)
    if model.trial_ is None:
        say(f"No row is accepted: {NO_THRESHOLD}.")
    typer.echo(f"{path}: {counted(count, 'row')} predicted. The predictions are in {out}.")


def _add_decisions(out: Path, coverage: float, model: Any, rows: Any, truth: Any) -> None:
    """Evaluate and calibrate a model on held-out rows (X, y), and save it again."""
    with errors_as_messages(stopped="The model has no decisions and prediction sets."):
        X, y = rows
        typer.echo("\n".join(_evaluate(model, X, y, coverage, truth)))
        model.save(out)


def _refuse_too_few(coverage: float, held_out: int) -> None:
    """Raise if so many held-out rows do not suffice for prediction sets of this coverage."""
    needed = math.ceil(round(coverage / (1 - coverage), 9))
    if MIN_HELD_OUT <= held_out < needed:
        message = f"--coverage {coverage:g} needs {needed:,} held-out rows"
        raise InputError(f"{message}, but there are {held_out:,}. Pass a larger --held-out.")


def _refuse_added(table: "Table") -> None:
    """Raise if columns that `clean` added would be features."""
    from robustpll.clean.run import ADDED

    X = table.features
    added = [name for name in ADDED if name in X]
    if added and {*ADDED} <= {*X, *table.reading.left_out}:
        message = f"Column {added[0]!r} was added by robustpll clean and reveals the label."
        raise InputError(f"{message} Pass the original table, or --ignore it.")


def _compared(
    model: Any,
    table: "Table",
    y: "Candidates",
    split: tuple[NDArray[np.int64], NDArray[np.int64]],
    *,
    seed: int,
    seconds: float,
) -> str:
    """Compare a model with baselines, by training rows that members held out, or by test rows."""
    import torch
    from sklearn.utils import _safe_indexing

    from robustpll.evaluate.compare import (
        FEWEST_ROWS,
        Predictions,
        baselines,
        comparison_of,
        sampled,
    )

    train, test = split
    X, truth, splits = table.X, table.truth, None
    held_out = getattr(model, "held_out_", None)
    if getattr(model.resolved_method(), "early_stopping", False):
        held_out = None  # these rows chose the epoch
    if len(train if held_out is not None else test) < FEWEST_ROWS:
        return f"not compared with baselines, because fewer than {FEWEST_ROWS} rows are held out"
    if held_out is not None:
        X, y = _safe_indexing(X, train), y[train]
        truth, predicted = None if truth is None else truth[train], held_out.predicted()
    else:
        sample = train[sampled(len(train), seed)]
        splits = torch.from_numpy(sample[None]), torch.from_numpy(test[None])
        predicted = np.full(len(y), -1)
        predicted[test] = model.predict_opinion(_safe_indexing(X, test)).predicted()
    ours = Predictions(model.resolved_method().title, np.asarray(predicted), seconds)
    others = baselines(model.features_.rows(X), y, seed, splits)
    return as_options(str(comparison_of(y, ours, others, truth)))


@shared.with_options
def compare(
    path: shared.TablePath,
    *,
    columns: shared.ColumnOptions,
    file: shared.FileOptions,
    training: shared.TrainingOptions,
    network: Annotated[shared.Text, Option(help="Network of the method: small or mlp.")] = None,
    folds: Annotated[int, Option(help="Number of cross-validation folds.")] = 5,
) -> None:
    """Compare a method with a majority vote and standard classifiers; write nothing.

    All learners predict the same held-out rows. No true label is needed; --truth adds the accuracy.
    """
    columns.check_form(path)
    with errors_as_messages():
        method = training.method_in_folds(network)
    decisions = training.decisions or []
    table = shared.read(path, columns, file, cells=bool(decisions))
    with errors_as_messages():
        from robustpll.clean.decisions_file import apply_decisions
        from robustpll.evaluate.compare import compare as compare_rows

        _refuse_added(table)
        decided = apply_decisions(table, decisions, columns.row_id)
        X, y, truth = decided.table.X, decided.candidates, decided.table.truth
        options: Any = {"random_state": training.seed, "device": training.device}
        options["cluster"] = training.cluster
        options |= {"verbose": sys.stderr.isatty(), "truth": truth, "text": table.reading.text}
        result = compare_rows(X, y, method=method, folds=folds, **options)
    typer.echo(f"{path}: {len(y):,} rows, {shared.summary_of(y)}\n{as_options(str(result))}")


def split_rows(
    features: "pd.DataFrame", y: "Candidates", share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return random training rows and held-out rows, each in their order.

    The training rows include one row of each class, of each word, and with a gap in each column
    that has gaps: a model cannot be evaluated on what it never saw.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    needed = np.zeros(len(y), dtype=bool)  # in this order
    needed[y.matrix[order].argmax(0)] = True
    for name in features:
        column = features[name].iloc[order]
        if column.dtype.kind not in "biuf":
            needed |= ~column.duplicated().to_numpy()
        elif column.hasnans:
            needed[column.isna().to_numpy().argmax()] = True
    count = max(0, min(round(share * len(y)), len(y) - 2))
    test = np.sort(order[~needed][:count])
    return np.setdiff1d(np.arange(len(y)), test), test


def _evaluate(model: Any, X: Any, y: "Candidates", coverage: float, truth: Any) -> Iterator[str]:
    """Evaluate and calibrate a model on held-out rows; yield the summary."""
    import pandas as pd

    from robustpll.measures.conformal import ConformalSets

    if len(y):
        covered = f"in {model.score(X, y):.1%} of them the predicted class is a candidate"
        yield f"held out: {counted(len(y), 'row')}, drawn at random; {covered}"
        if truth is not None:
            yield shared.right_shares(model.predict(X) == truth, {"held-out rows": pd.notna(truth)})
    if len(y) < MIN_HELD_OUT:
        yield f"predict accepts no rows, because fewer than {MIN_HELD_OUT} are held out"
        return
    if not model.is_calibrated:
        with suppress(InputError):  # these rows may not determine a factor
            model.recalibrate(X, y)
    model.calibrate_decisions(X, y)
    sets = ConformalSets.of(model, X, y, coverage, hold="weighted")
    model.notes_["sets"] = {"least": sets.least, "coverage": coverage}
    size = f"{sets.predict(X).sum(-1).mean():.2f} classes on average"
    yield f"prediction sets for {coverage:.0%} have {size}"
    share = f"{model.decide(X, error=ERROR).coverage:.1%} of held-out rows"
    yield f"{share} are accepted if {ERROR:.0%} of these may be wrong"


@shared.with_options
def predict(
    model: shared.ModelPath,
    path: shared.TablePath,
    *,
    out: Annotated[Path, Option(help="The CSV file to write; or an export, like the table.")],
    keep: Annotated[shared.Texts, shared.column_option(help="Column to copy; repeatable.")] = None,
    truth: shared.Truth = None,
    error: Annotated[float, shared.share_option(help="Accepted rows that may be wrong.")] = ERROR,
    question: Annotated[shared.Text, Option(help="Question of an export, if several.")] = None,
    image_input: shared.ImageInput = None,
    images_root: shared.ImagesRoot = None,
    file: shared.FileOptions,
    skip_bad_rows: shared.SkipBadRows = False,
    device: shared.Device = "auto",
    stream: Annotated[bool, Option("--stream", help=STREAM)] = False,
) -> None:
    """Predict each row of a table of any size: the label, its certainty, and a decision.

    The output has one line for each row, in the same order. A row that does not parse is marked
    for review, with the reason. If the table is an export of a labelling tool, --out may be one,
    too: it gets the predictions. With --stream, --out is Parquet, and a bad row is an error.
    """
    if not 0 < error < 1:
        raise BadParameter("--error must be above 0 and below 1.")
    if stream:
        rest: Any = {"truth": truth, "question": question, "skip_bad_rows": skip_bad_rows}
        _refuse_unused(file, **rest, image_input=image_input, images_root=images_root)
        with errors_as_messages(stopped=f"{out} is not written."):
            about: Any = {"keep": keep or [], "error": error, "inputs": (model, path)}
            _stream_predict(_load(model, device), path, out, **about)
        return
    is_export = _is_export(path, out)
    keep = keep or []
    with errors_as_messages(stopped=f"{out} is not written."):
        classifier = _load(model, device)
        start = rb"(?!)" if is_export else PREDICTIONS_START  # an export is never replaced
        refuse_unwritable(out, (model, path), start, "a file of predict")
        images = (image_input, images_root)
        table = _table_to_predict(classifier, path, file, question, images)
        if clash := [name for name in keep if name in (*COLUMNS, table.source.unit)]:
            raise InputError(f"--keep {clash[0]}: the output has a column of this name. Rename it.")
        by = model.stem if is_export else ""
        with nullcontext() if is_export else recorded(out):
            counts = _write(classifier, table, out, error, keep=keep, truth=truth, by=by)
    for name, unseen in table.new_words.items():
        if unseen:
            words = f"words that training did not see ({some_of(map(repr, unseen))})"
            count = f"{counted(unseen.total(), 'row')} of column {name!r}"
            say(f"{path}: {words} become gaps, in {count}.")
    typer.echo(f"{path}: " + "\n".join(_summary(counts, classifier.trial_)))
    typer.echo(f"The predictions are in {out}.")
    if bad := counts["rows"][counts["reason"] == BAD].sum():
        count = counted(int(bad), "row does", "rows do")
        say(f"{count} not parse: for review (--skip-bad-rows accepts that).")
        raise typer.Exit(0 if skip_bad_rows else 1)


def _table_to_predict(
    classifier: Any,
    path: Path,
    file: shared.FileOptions,
    question: str | None,
    images: tuple[str | None, Path | None],
) -> "TableInPieces":
    """Open a table to be read like that of the training."""
    from robustpll.tables.read import TableInPieces
    from robustpll.tables.source import Reading

    image_input, images_root = images
    features, names = classifier.features_, getattr(classifier, "feature_names_in_", ())
    words: Any = features.categories | dict.fromkeys(features.texts, ())
    columns = {str(name): words.get(str(name)) for name in names}
    before = Reading.from_json(classifier.notes_.get("reading") or {})
    pictures = _picture_column(features.shape, image_input or before.image_input, path)
    if images_root is not None and (pictures is None or not images_root.is_dir()):
        rule = "no such folder" if pictures else "no picture to read for this model"
        raise InputError(f"images_root={str(images_root)!r}: there is {rule}.")
    if pictures is not None:
        pictures = replace(pictures, root=images_root)
    requested = file.reading(question=question, duplicates="last")  # answers do not matter
    return TableInPieces(path, columns, features.fill, before, requested, pictures)


def _is_export(path: Path, out: Path) -> bool:
    """Whether an export is written; raise unless it is like the table, or CSV is written."""
    from robustpll.tables.source import EXPORTS

    ending = out.suffix.lower()
    if ending != ".csv" and not ending == path.suffix.lower() in EXPORTS:
        rule = "it must end in .csv, or like the export that is read (.json or .jsonl)"
        raise BadParameter(f"--out writes CSV, or an export: {out}: {rule}.")
    return ending != ".csv"


def _load(path: Path, device: str) -> Any:
    """Load a classifier that was fitted with named columns."""
    from robustpll import load

    model = load(path, device=device)
    if not hasattr(model, "feature_names_in_") and len(model.features_.shape) == 1:
        raise InputError(f"{path} was fitted without names of columns. Fit a DataFrame.")
    sets = model.notes_.get("sets", {"least": 0})
    if not isinstance(sets, dict) or not is_share(sets.get("least")):
        raise ModelFileError(f"{path} is damaged: its prediction sets are {sets!r}.")
    return model


def _picture_column(shape: tuple[int, ...], name: str | None, path: Path) -> Any:
    """Return how pictures are read for a model of this shape; None if it learned from columns."""
    from robustpll.tables.images import PictureColumn

    if len(shape) == 1 and name is None:
        return None
    channels = shape[0] if len(shape) == 3 else 1
    if name is None or len(shape) == 1 or channels not in (1, 3):
        rule = "It is the column of pictures, for a model of grey pictures or of RGB"
        raise InputError(f"image_input={name!r}: the model takes rows of shape {shape}. {rule}.")
    return PictureColumn(name, path.parent, None, (shape[-2], shape[-1]), channels == 1)


def _write(
    model: Any,
    table: "TableInPieces",
    out: Path,
    error: float,
    *,
    keep: list[str],
    truth: Any,
    by: str = "",
) -> "pd.DataFrame":
    """Predict a table piece by piece, write the rows, and count them, see `_tally`.

    With the name of a model (`by`), an export of a labelling tool gets the predictions.
    """
    import pandas as pd
    from rich.console import Console

    from robustpll.tables.source import GAPS, safe_cell, safe_csv

    copied = [*keep, truth] if truth else keep
    classes = {str(name) for name in model.classes_}
    gaps, unit = {*GAPS, *table.source.gaps} - classes, table.source.unit
    counts, predictions, done, form = [], [], 0, table.source.reading.csv_format
    with writing(out) as file, Console(stderr=True).status("0 rows") as status:
        file.write(b"" if by else codecs.BOM_UTF8)  # spreadsheets recognise UTF-8 by it
        max_rows = MAX_NUMBERS // max(len(classes), math.prod(model.features_.shape))
        for piece in table.pieces(copied, max_rows):
            rows = _predict_piece(model, piece, error)
            copies: Any = pd.DataFrame.from_dict(piece.copies, "index", columns=range(len(copied)))
            copies = copies.reindex(rows.index, fill_value="")
            true = copies.pop(len(keep)) if truth else pd.Series("", rows.index)
            counts.append(_tally(rows, true, classes, gaps))
            copies.columns = [*map(safe_cell, keep)]
            rows = pd.concat([copies, rows], axis=1)
            if by:
                predictions.append(rows)
            else:
                if "decimal" in form:
                    rows = rows.replace(dict.fromkeys(MEASURES, r"\."), form["decimal"], regex=True)
                text = safe_csv(rows, header=not done, index_label=unit, **form)
                file.write(text.encode())
            done += len(rows)
            status.update(f"{done:,} rows")
        total = pd.concat(counts).groupby(["reason", "outcome"]).sum().reset_index(name="rows")
        if (total["reason"] == BAD).all():
            first = [f"{unit} {line}: {text}" for line, text in rows["reason"].items()]
            raise InputError(f"No row of the table parses ({some_of(first, 1)}).")
        if by:
            source: Any = table.source
            file.write(source.with_predictions(pd.concat(predictions), by))
    return total


def _tally(
    rows: "pd.DataFrame", truth: "pd.Series[Any]", classes: set[str], gaps: set[str]
) -> "pd.Series[int]":
    """Count rows by reason and outcome: "right", "wrong", "unknown", or "" without a true class."""
    integers = truth.str.removesuffix(".0")  # gaps make floats of integers
    truth = truth.mask(integers.isin(classes), integers)
    outcome = (truth == rows["label"]).map({True: "right", False: "wrong"})
    outcome = outcome.mask(~truth.isin(classes), "unknown").mask(truth.isin(gaps), "")
    reason = rows["reason"].str.split(":").str[0].mask(rows["label"] == "", BAD)
    return rows.assign(reason=reason, outcome=outcome).value_counts(["reason", "outcome"])


def _summary(counts: "pd.DataFrame", trial: Any) -> Iterator[str]:
    """Yield one line for each fact about the predictions."""
    from robustpll.estimator.abstention import ACCEPTED

    counts = counts[counts["reason"] != BAD]
    total, by_reason = counts["rows"].sum(), counts.groupby("reason")["rows"].sum()
    shares = [f"{reason}: {n:,} ({n / total:.1%})" for reason, n in by_reason.items()]
    yield f"{counted(int(total), 'row')} predicted; {', '.join(shares)}"
    if trial is None:
        yield f"no prediction sets, and all rows are for review: {NO_THRESHOLD}"
    if unknown := counts["rows"][counts["outcome"] == "unknown"].sum():
        yield f"rows with a true class that the model does not know: {unknown:,}"
    known = counts["outcome"].isin(["right", "wrong"])
    if known.any():
        groups = {"rows": known, "accepted ones": known & (counts["reason"] == ACCEPTED)}
        yield shared.right_shares(counts["outcome"] == "right", groups, counts["rows"])


def _predict_piece(model: Any, piece: "Piece", error: float) -> "pd.DataFrame":
    """Return the cells of `COLUMNS` for all rows of a piece, by line; bad rows have no label."""
    import pandas as pd

    from robustpll.estimator.abstention import NO_PROMISE
    from robustpll.tables.stream import measures_of

    features, lines = piece.features, pd.Index(piece.lines)
    too_far = model.features_.unusable_rows(features) if len(features) else np.zeros(0, bool)
    faults = [(row.line, as_options(str(row))) for row in piece.bad]
    faults += [(line, TOO_FAR) for line in lines[too_far]]
    reasons = pd.DataFrame(faults, columns=["line", "reason"]).groupby("line").agg("; ".join)
    bad = reasons.assign(decision=REVIEW).reindex(columns=[*COLUMNS], fill_value="")
    features, lines = features[~too_far], lines[~too_far]
    if not len(features):
        return bad
    opinion = model.predict_opinion(features)
    predicted, measures = measures_of(opinion)
    names = np.array([*map(str, model.classes_)], dtype=object)
    cells: dict[str, Any] = {"label": names[predicted]}
    cells |= {name: np.char.mod("%.6g", values.clip(0, 1)) for name, values in measures.items()}
    cells |= {"prediction_set": "", "decision": REVIEW, "reason": NO_PROMISE}
    if model.trial_ is not None:  # a later recalibration removes it: sets do not hold, either
        decision = model.decide(features, error=error)
        cells["decision"] = np.where(decision.accepted, ACCEPT, REVIEW)
        cells["reason"] = decision.reason
        if "sets" in model.notes_:
            plain = not any("|" in name or name.startswith("[") for name in names)
            written = "|".join if plain else partial(json.dumps, ensure_ascii=False)
            members = opinion.probability >= model.notes_["sets"]["least"]
            cells["prediction_set"] = [written(names[row].tolist()) for row in members]
    good = pd.DataFrame(cells, lines)
    return (pd.concat([good, bad]) if len(bad) else good).sort_index()


def export(
    model: shared.ModelPath, *, out: Annotated[Path, Option(help="The ONNX file to write.")]
) -> None:
    """Write a neural model as ONNX: scaling, networks, probabilities and uncertainty."""
    if out.suffix.lower() != ".onnx":
        raise BadParameter(f"--out writes ONNX: {out} must end in .onnx.")
    with errors_as_messages():
        from robustpll import load
        from robustpll.estimator.onnx import INPUT, KEY, OUTPUTS

        # ONNX files start with their version, then the length and name of the exporting program
        start = rb"\x08.\x12" + bytes([len(KEY)]) + KEY.encode()
        refuse_unwritable(out, (model,), start, "a file of export")
        classifier = load(model, device="cpu")
        classifier.export_onnx(out)
    shape = " x ".join(map(str, classifier.features_.shape))
    outputs = ", ".join(OUTPUTS)
    typer.echo(f"{out} takes rows of {shape} numbers as {INPUT!r}, and returns {outputs}.")
