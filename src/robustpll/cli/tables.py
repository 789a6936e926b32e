"""Options that several commands share, how they read tables; `robustpll table` and `embed`."""

import functools
import gzip
import inspect
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, BadParameter, Option

from robustpll.cli.messages import as_options, errors_as_messages, refuse_unwritable, say, show_list
from robustpll.errors import InputError, counted, some_of

if TYPE_CHECKING:
    from robustpll.labels.candidates import Candidates
    from robustpll.tables.read import Table
    from robustpll.tables.source import Reading

Text = str | None
Texts = list[str] | None
Files = list[Path] | None
column_option = functools.partial(Option, metavar="COLUMN")
prefix_option = functools.partial(Option, metavar="PREFIX")
file_option = functools.partial(Option, metavar="FILE")
folder_option = functools.partial(Option, metavar="FOLDER")
share_option = functools.partial(Option, metavar="SHARE")

TABLE = "A .csv, .tsv or .parquet file, or an export of Label Studio, Argilla or doccano."
TablePath = Annotated[Path, Argument(metavar="TABLE", help=TABLE)]
ModelPath = Annotated[Path, Argument(metavar="MODEL", help="A file that `fit` wrote.")]
Truth = Annotated[Text, column_option(help="Column of true labels, to compare with.")]
SkipBadRows = Annotated[bool, Option("--skip-bad-rows", help="Go on if rows do not parse.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
IMAGE_INPUT = "Paths of pictures, which are the only features then."
IMAGE_SIZE = "Side of the pictures in pixels, or HEIGHTxWIDTH; by default theirs, or 64."
ImageInput = Annotated[Text, column_option(help=IMAGE_INPUT)]
ImagesRoot = Annotated[Path | None, Option(help="Folder of pictures, or the table's.")]
NoBaselines = Annotated[bool, Option("--no-baselines", help="Do not compare with baselines.")]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of all random numbers.")]

CELL_BYTES = 40  # the table, and its numbers before and after scaling
ROW_BYTES = 3000  # candidates, and the hidden layer of held-out rows
SAMPLE_BYTES = 2**20  # to estimate the length of the rows of a CSV file
COMPRESSION = 4  # usual size of a table divided by the size of its gzip file
BAD_ROWS_SHOWN = 5
MAX_GROUPS = 10  # of similar class names
FOLD_CASE = "Merge class names that differ in case, extra blanks or Unicode form."
MERGE = "--fold-case merges case, extra blanks; `table --propose map.csv` and --rename merge all."
UNLABELLED = (
    "has no answers to learn from. Label some records first; from Label Studio, export JSON, not "
    "JSON-MIN."
)
PROPOSE = "CSV file for new names of similar classes, to edit and pass as --rename."
ENCODER = "An ONNX file, or a name of timm (also NAME:FILE.safetensors) or sentence-transformers."
NORMALIZE = "Colours of an encoder: imagenet, half (from -1 to 1) or none (from 0 to 1)."
HELD_OUT = 0.2  # share of rows for early stopping, if the method holds out none by itself


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns hold labels and features, and what happens to rows that do not parse."""

    candidates: Annotated[Text, column_option(help="Column of sets: cat|dog, or JSON.")] = None
    separator: Annotated[str, Option(help="Character between the names of a set.")] = "|"
    indicators: Annotated[Text, prefix_option(help="Prefix of 0/1 columns, as in 'is '.")] = None
    votes: Annotated[Text, prefix_option(help="Prefix of columns with answers.")] = None
    answers: Annotated[Path | None, file_option(help="Long table, an answer per row.")] = None
    item: Annotated[Text, column_option(help="Names of rows, also in --answers.")] = None
    annotator: Annotated[Text, column_option(help="Who answered, in --answers.")] = None
    label: Annotated[Text, column_option(help="The answer, in --answers.")] = None
    confidence: Annotated[Text, column_option(help="How sure it is, in --answers.")] = None
    duplicates: Annotated[str, Option(help="Two answers of one: error, last or set.")] = "error"
    question: Annotated[Text, Option(help="Question of an export, if several.")] = None
    unsure: Annotated[Text, Option(metavar="WORD", help='Answer for "cannot tell".')] = None
    rename: Annotated[Path | None, file_option(help="CSV with new names: from,to.")] = None
    fold_case: Annotated[bool, Option("--fold-case", help=FOLD_CASE)] = False
    truth: Truth = None
    ignore: Annotated[Texts, column_option(help="Column to leave out; repeatable.")] = None
    id: Annotated[Text, column_option(help="Column of unique ids, by which decisions last.")] = None
    categories: Annotated[Texts, column_option(help="Categorical column; repeatable.")] = None
    image_input: ImageInput = None
    image_size: Annotated[Text, Option(metavar="SIZE", help=IMAGE_SIZE)] = None
    images_root: ImagesRoot = None
    text: Annotated[Texts, column_option(help="Column of texts to learn from; repeatable.")] = None
    unanswered: Annotated[str, Option(help='No candidates: "error" or "all classes".')] = "error"
    skip_bad_rows: SkipBadRows = False
    errors: Annotated[Path | None, file_option(help="CSV file that lists bad rows.")] = None

    def check_form(self, path: Path, *, required: bool = True) -> None:
        """Refuse more than one form of candidates, and none if one is required."""
        from robustpll.tables.source import EXPORTS

        forms = (self.candidates, self.indicators, self.votes, self.answers)
        passed = sum(form is not None for form in forms)
        if passed > 1 or (required and not passed and path.suffix.lower() not in EXPORTS):
            remedy = "Where are the labels? Pass one of --candidates, --indicators and --votes; or"
            long = "--answers with another file that has one answer per line."
            raise BadParameter(f"{remedy} {long}")

    @property
    def row_id(self) -> str | None:
        """The column by which decisions find their rows."""
        return self.id or self.item

    def ignored(self) -> list[str]:
        """Return the columns that are not features, though the table is not told what they are."""
        names = [self.id] if self.id and self.id != self.item else []
        return [*dict.fromkeys([*names, *(self.ignore or ())])]

    def unused(self, table: "Table") -> list[str]:
        """Return the columns that would be features if pictures were not the only ones."""
        from robustpll.tables.exports import PREFIX

        labels = tuple(filter(None, (self.votes, self.indicators, PREFIX)))
        named = {self.candidates, self.item, self.truth, self.image_input, *self.ignored()}
        names = table.reading.left_out if self.image_input else ()
        return [n for n in names if n not in named and not n.startswith(labels)]


@dataclass(frozen=True)
class FileOptions:
    """How a table file is written."""

    missing: Annotated[Texts, Option(metavar="WORD", help="Word for gaps; repeatable.")] = None
    encoding: Annotated[Text, Option(help="Encoding of a CSV file, if not UTF-8.")] = None
    delimiter: Annotated[Text, Option(help="Character between the cells of a CSV file.")] = None
    decimal: Annotated[Text, Option(help="Decimal sign in a CSV file.")] = None

    def reading(self, **further: Text) -> "Reading":
        """Return how a table is read with these options, and with further ones by name."""
        from robustpll.tables.source import Reading, several

        return Reading(**asdict(self) | {"missing": several(self.missing)} | further)


@dataclass(frozen=True)
class CheckpointOptions:
    """Where the state of a training is stored."""

    checkpoint: Annotated[Path | None, folder_option(help="Stores the training's state.")] = None
    resume: Annotated[bool, Option("--resume", help="Go on from --checkpoint, if it is.")] = False

    def fit(self, model: Any, X: Any, y: Any) -> None:
        """Fit a model, or go on from a checkpoint."""
        from robustpll.engine.checkpoint import has_checkpoint

        if self.resume and self.checkpoint is None:
            raise InputError("--resume needs the folder to go on from: --checkpoint FOLDER.")
        if self.checkpoint is not None and self.resume and has_checkpoint(self.checkpoint):
            model.fit(X, y, resume=self.checkpoint)
        else:
            model.set_params(checkpoint=self.checkpoint).fit(X, y)


@dataclass(frozen=True)
class TrainingOptions:
    """What is trained, how and where."""

    decisions: Annotated[Files, file_option(help="Decisions on a review page; repeatable.")] = None
    method: Annotated[str, Option(help="A method of `robustpll methods`.")] = "auto"
    epochs: Annotated[int | None, Option(help="Training epochs, if the method has them.")] = None
    early_stopping: Annotated[bool, Option(help="Keep the epoch that is best held out.")] = False
    device: Device = "auto"
    cluster: Annotated[Text, Option(help="local, ray or ray://HOST:PORT: where to train.")] = None
    seed: Seed = 0

    def method_in_folds(self, network: Text = None) -> Any:
        """Return the method for commands that hold out folds; raise as `model` does."""
        model = self.model(network)
        if model.watch is not None:
            raise InputError("--early-stopping works with --method auto here. Leave it out.")
        return model.resolved_method()

    def model(self, network: Text = None) -> Any:
        """Return a classifier to fit; raise if the options do not go together."""
        from robustpll import PLLClassifier
        from robustpll.engine.device import chosen_device

        where: Any = {"device": self.device, "cluster": self.cluster}
        model = PLLClassifier(self.method, random_state=self.seed, **where)
        model.resolved_method()  # raises if there is no such method
        chosen_device(self.device)
        parameters = {"method__epochs": self.epochs, "method__network": network}
        passed: dict[str, Any] = {n: value for n, value in parameters.items() if value is not None}
        if self.early_stopping:
            has_field = "method__early_stopping" in model.get_params()
            passed |= {"method__early_stopping": True} if has_field else {"watch": HELD_OUT}
        return model.set_params(**passed)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer: each field of its dataclass parameters becomes an option."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: Any = {n: p.annotation for n, p in parameters.items() if is_dataclass(p.annotation)}
    flat: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        is_group = name in groups
        options = inspect.signature(groups[name]).parameters.values() if is_group else [parameter]
        flat += [option.replace(kind=option.KEYWORD_ONLY) for option in options]

    @functools.wraps(command)
    def expanded(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{f.name: options.pop(f.name) for f in fields(group)})
        command(**options)

    expanded.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return expanded


def read(
    path: Path, columns: ColumnOptions, file: FileOptions, show: bool = False, cells: bool = False
) -> "Table":
    """Return the rows that parse; print the others and suspicious class names on stderr.

    Too large a table is refused, and rows that do not parse end the command, unless they may be
    skipped; but not if the table is only to `show`.
    """
    from robustpll.tables.read import read_with_cells
    from robustpll.tables.source import EXPORTS

    arguments = asdict(columns) | asdict(file) | {"ignore": columns.ignored()}
    arguments["errors_to"] = arguments.pop("errors")
    del arguments["skip_bad_rows"], arguments["id"]
    check_columns(path, file, id=columns.id)
    with errors_as_messages(about=f"{path}: "):
        if not show:
            refuse_too_large(path)
        table = read_with_cells(path, cells, as_options, on_bad_rows="skip", **arguments)
        if table.y is None and not show:
            raise InputError(f"{path} {UNLABELLED}")
        if not (show or table.features.shape[1] or columns.image_input):
            remedy = "Add columns that describe the items, or pictures by --image-input."
            raise InputError(f"no column is left to learn from, beside labels and ids. {remedy}")
    if table.y is None and path.suffix.lower() in EXPORTS:
        say(f"{path} {UNLABELLED}")
    for message in (*_bad_rows(table, path, columns), *_class_names(table, path, columns)):
        say(message)
    if unused := columns.unused(table):
        say(f"{path}: pictures are the only features. Not used: {some_of(map(repr, unused))}.")
    if table.bad and not show and not columns.skip_bad_rows:
        raise typer.Exit(1)
    return table


def check_columns(path: Path, file: FileOptions, **columns: Text) -> None:
    """Refuse options, by name, that name no column of the table."""
    with errors_as_messages():
        from robustpll.tables.source import check_names, opened_source

        if passed := {option: name for option, name in columns.items() if name}:
            names = opened_source(path, file.reading()).names
            for option, name in passed.items():
                check_names(names, [name], option)


def _bad_rows(table: "Table", path: Path, columns: ColumnOptions) -> Iterator[str]:
    """Yield how many rows do not parse, the first of them, and the remedies."""
    from robustpll.tables.source import EXPORTS, PARQUET

    bad, where = table.bad, "row" if path.suffix.lower() in (*PARQUET, *EXPORTS) else "line"
    if not bad:
        return
    left_out = " (left out)" if columns.skip_bad_rows else ""
    count = counted(len({row.line for row in bad}), "row does", "rows do")
    yield f"{path}: {count} not parse{left_out}:"
    yield from (f"  {where} {row.line}: {as_options(str(row))}" for row in bad[:BAD_ROWS_SHOWN])
    if columns.errors:
        yield f"{columns.errors} lists them."
    elif len(bad) > BAD_ROWS_SHOWN:
        yield f"  and {len(bad) - BAD_ROWS_SHOWN:,} more; pass --errors FILE to list all of them"
    if not columns.skip_bad_rows:
        yield "Correct these rows, or pass --skip-bad-rows to leave them out."


def _class_names(table: "Table", path: Path, columns: ColumnOptions) -> Iterator[str]:
    """Yield class names that may be one class, and words that may mean "no answer"."""
    from robustpll.labels.spelling import label_variants

    if table.y is None:
        return
    variants = label_variants(table.y)
    for names in variants.groups[:MAX_GROUPS]:
        similar = some_of(f"{name!r} ({counted(rows, 'row')})" for name, rows in names.items())
        yield f"{path}: {similar} may mean the same class. {next(iter(names))!r} is proposed."
    if variants.groups:
        more = max(0, len(variants.groups) - MAX_GROUPS)
        yield f"{path}: {f'And {more:,} more. ' if more else ''}{MERGE}"
    prefix, option = columns.indicators or "", "--ignore" if columns.indicators else "--missing"
    for word in variants.placeholders:
        remedy = f'{option} "{prefix + word}"'
        yield f'{path}: {word!r} became a class. Pass {remedy} if it means "no answer".'


def refuse_too_large(path: Path) -> None:
    """Raise, before a table is read, if training on it would take more memory than is free."""
    from robustpll.tables.images import free_memory

    free, cells, rows = free_memory(), 0, 0
    with suppress(OSError, EOFError, zlib.error):  # reading the table reports it
        cells, rows = _estimated_size(path)
    needed = cells * CELL_BYTES + rows * ROW_BYTES
    if needed > free:
        fault = f"{path} is too large to learn from here: it takes {needed / 2**30:,.1f} GiB"
        sample = f"a random sample of {int(rows * free / needed * 0.8):,} rows"
        sample += ", or save it as Parquet and pass --stream"
        raise InputError(f"{fault}, and {free / 2**30:,.1f} GiB are free. Use {sample}.")


def _estimated_size(path: Path) -> tuple[int, int]:
    """Estimate the numbers of cells and rows of a table."""
    from robustpll.tables.source import PARQUET, parquet_file

    if path.suffix.lower() in PARQUET and path.is_file():
        with parquet_file(path) as file:
            return file.metadata.num_rows * file.metadata.num_columns, file.metadata.num_rows
    is_gzip = path.suffix.lower() == ".gz"
    with gzip.open(path) if is_gzip else path.open("rb") as raw:
        sample = raw.read(SAMPLE_BYTES)
    factor = path.stat().st_size * (COMPRESSION if is_gzip else 1) / max(1, len(sample))
    rows = sample.count(b"\n") or sample.count(b"\r")
    delimiters = max(sample.count(mark) for mark in (b",", b";", b"\t"))
    return round((delimiters + rows) * factor), round(rows * factor)


def fit_and_save(model: Any, out: Path, fit: Callable[[], Any], **notes: Any) -> float:
    """Fit a classifier by `fit` with a progress bar, save it, and return the seconds that it took.

    The training must not be lost if the evaluation fails.
    """
    from rich.console import Console

    from robustpll.engine.history import progress_bars

    start, console = time.monotonic(), Console(stderr=True)
    with progress_bars(console) if console.is_terminal else nullcontext():
        fit()
    seconds = time.monotonic() - start
    model.notes_ = notes
    model.save(out)
    return seconds


def summary_of(y: "Candidates") -> str:
    """Return one line about classes and candidates."""
    return f"{len(y.classes):,} classes; {y.sizes.mean():.2f} candidates a row on average"


def input_of(table: "Table") -> str:
    """Return what a model of a table gets, in words."""
    if table.pictures is None:
        return counted(table.features.shape[1], "feature")
    return f"pictures of {' x '.join(map(str, table.pictures.shape[1:]))}"


def right_shares(right: Any, groups: dict[str, Any], weights: Any = 1) -> str:
    """Return the share of correct labels in each group of rows; arrays have shape (n,)."""
    shares = []
    for name, group in groups.items():
        if count := int((group * weights).sum()):
            share = (group * weights * right).sum() / count
            shares.append(f"{share:.1%} of {count:,} {name}")
    return f"right by the true labels: {', '.join(shares)}"


@with_options
def table(
    path: TablePath,
    *,
    columns: ColumnOptions,
    file: FileOptions,
    propose: Annotated[Path | None, file_option(help=PROPOSE)] = None,
) -> None:
    """Show the rows, classes, features and annotators of a table, and rows that do not parse."""
    columns.check_form(path, required=False)
    with errors_as_messages():
        if propose is not None:
            refuse_unwritable(propose, (path,), b"", "")
    table = read(path, columns, file, show=True)
    if propose is not None and table.y is not None:
        with errors_as_messages():
            _propose(table.y, propose, file.reading().csv_format)
    typer.echo(f"{path}: {counted(len(table), 'row')}, {input_of(table)}")
    if table.y is not None:
        _show_labels(table)
    kinds = []
    for name, column in table.features.items():
        words = f"category of {counted(column.nunique(), 'word')}"
        words = "" if column.dtype.kind in "biuf" else words
        words = "text" if name in table.reading.text else words
        kinds.append((name, words or "number", f"{column.isna().sum():,}"))
    if kinds:
        show_list(("feature", "is read as", "gaps"), kinds)
    if table.bad and not columns.skip_bad_rows:
        raise typer.Exit(1)


def _propose(y: Any, path: Path, form: dict[str, str]) -> None:
    """Write new names of similar classes, and gaps for words that may mean "no answer"."""
    import pandas as pd

    from robustpll._files import refuse_replacing, write_whole
    from robustpll.labels.spelling import FROM, TO, label_variants
    from robustpll.tables.source import safe_csv

    mapping = label_variants(y).mapping
    names = pd.DataFrame({FROM: [*mapping], TO: [new or "" for new in mapping.values()]})
    content = safe_csv(names, index=False, **form).encode("utf-8-sig")
    refuse_replacing(path, lambda _: path.read_bytes() == content, "what this table proposes")
    write_whole(path, content)
    count = counted(len(mapping), "class", "classes")
    say(f"{path} proposes new names for {count}. Correct it, and pass --rename.")


def _show_labels(table: "Table") -> None:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes

    y = Candidates.of(table.y)
    typer.echo(summary_of(y))
    if table.truth is not None:
        known = pd.notna(table.truth).nonzero()[0]
        codes = pd.Index(y.classes).get_indexer(table.truth[known])
        covered = (codes >= 0) & y.matrix[known, codes]
        share = f"among the candidates in {covered.mean():.1%} of them"
        typer.echo(f"the truth is known for {counted(len(known), 'row')}, and is {share}")
    counts = pd.Series(y.matrix.sum(0), y.classes).sort_values(ascending=False, kind="stable")
    rows = [(name, f"{count:,}", f"{count / len(y):.1%}") for name, count in counts.items()]
    show_list(("class", "candidate in rows", "share"), rows)
    if isinstance(table.y, Votes):
        answers = table.y.answers.notna().sum()
        show_list(("annotator", "answers"), [(name, f"{n:,}") for name, n in answers.items()])


@with_options
def embed(
    path: TablePath,
    *,
    out: Annotated[Path, Option(help="The table to write: .parquet or .csv.")],
    encoder: Annotated[str, Option(metavar="ENCODER", help=ENCODER)],
    text: Annotated[Texts, column_option(help="Column of texts.")] = None,
    image_input: Annotated[Text, column_option(help="Column with paths of pictures.")] = None,
    images_root: ImagesRoot = None,
    normalize: Annotated[Text, Option(help=NORMALIZE)] = None,
    skip_bad_rows: SkipBadRows = False,
    file: FileOptions,
) -> None:
    """Compute features of pictures or texts by a pretrained network, once, and write a table.

    The columns e0, e1, ... are appended to those of the table. A command that was stopped goes on
    where it ended, if it is run again with the same options.
    """
    column = image_input if image_input is not None else text[0] if text else None
    if column is None or (text is not None and image_input is not None):
        raise BadParameter("pass one of --text and --image-input.")
    if text is not None and len(text) > 1:
        raise BadParameter("embed takes one --text. Embed its table again, for the next column.")
    if text is not None and (normalize is not None or images_root is not None):
        raise BadParameter("--normalize and --images-root are for --image-input.")
    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise BadParameter(f"--out writes CSV or Parquet: {out} must end in .csv or .parquet.")
    with errors_as_messages(stopped="Run the same command again to go on."):
        from rich.console import Console
        from rich.progress import Progress

        from robustpll.tables import encoders

        check_columns(path, file, text=column if text else None, image_input=image_input)
        refuse_unwritable(out, (path,), rb"(?!)", "a table of embed")  # it may be any table
        network = encoders.Encoder.of(
            encoder, pictures=image_input is not None, normalize=normalize
        )
        # the encoder's file, if it is one, may change between two calls
        weights = Path(encoder.rpartition(":")[2])
        about = weights.stat() if weights.is_file() else None
        stamp = "" if about is None else f"{about.st_size} {about.st_mtime_ns}"
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rows", total=None)
            rows, count, bad = encoders.embed(
                path,
                out,
                column,
                network,
                about=f"{encoder} {normalize} {stamp}",
                reading=file.reading(),
                root=images_root,
                skip_bad_rows=skip_bad_rows,
                progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
    for fault in bad:
        say(f"Left out: {as_options(fault)}")
    features = f"{counted(count, 'feature')} of column {column!r}, e0 to e{count - 1}"
    typer.echo(f"{out} has {counted(rows, 'row')} and {features}.")
    typer.echo(f"To learn from them: robustpll fit {out} --ignore '{column}' ...")
