"""Options that several commands share, in groups; and how commands read tables."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Exit, Option

from robustpll.cli.memory import refuse_too_large
from robustpll.cli.messages import as_options, refusals, refuse_unwritable, say, warnings_said
from robustpll.errors import InputError, some_of

if TYPE_CHECKING:
    from robustpll.labels.candidates import Candidates
    from robustpll.tables.read import Table

Text = str | None
Texts = list[str] | None
Files = list[Path] | None
column_option = functools.partial(Option, metavar="COLUMN")
prefix_option = functools.partial(Option, metavar="PREFIX")
file_option = functools.partial(Option, metavar="FILE")

TablePath = Annotated[Path, Argument(metavar="TABLE", help="A .csv, .tsv or .parquet file.")]
ModelPath = Annotated[Path, Argument(metavar="MODEL", help="A file that `fit` wrote.")]
Truth = Annotated[Text, column_option(help="Column of true labels, to compare with.")]
SkipBadRows = Annotated[bool, Option("--skip-bad-rows", help="Accept rows that do not parse.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of all random numbers.")]

BAD_ROWS_SHOWN = 5
MAX_GROUPS, MAX_NAMES = 10, 8  # of similar class names, and of names in such a group


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns hold labels and features, and what happens to rows that do not parse."""

    candidates: Annotated[Text, column_option(help="Column of sets: cat|dog, or JSON.")] = None
    separator: Annotated[str, Option(help="Character between the names of a set.")] = "|"
    indicators: Annotated[Text, prefix_option(help="Prefix of 0/1 columns, as in 'is '.")] = None
    votes: Annotated[Text, prefix_option(help="Prefix of columns with answers.")] = None
    truth: Truth = None
    ignore: Annotated[Texts, column_option(help="Column to leave out; repeatable.")] = None
    categories: Annotated[Texts, column_option(help="Categorical column; repeatable.")] = None
    unanswered: Annotated[str, Option(help='Empty sets: "error" or "all classes".')] = "error"
    skip_bad_rows: SkipBadRows = False
    errors: Annotated[Path | None, file_option(help="CSV file that lists bad rows.")] = None

    def check_form(self, *, required: bool = True) -> None:
        """Refuse more than one form of candidates, and none if one is required."""
        passed = sum(form is not None for form in (self.candidates, self.indicators, self.votes))
        if passed > 1 or (required and not passed):
            raise BadParameter("pass one of --candidates, --indicators and --votes.")


@dataclass(frozen=True)
class FileOptions:
    """How a table file is written."""

    missing: Annotated[Texts, Option(metavar="WORD", help="Word for gaps; repeatable.")] = None
    encoding: Annotated[Text, Option(help="Encoding of a CSV file, if not UTF-8.")] = None
    delimiter: Annotated[Text, Option(help="Character between the cells of a CSV file.")] = None
    decimal: Annotated[Text, Option(help="Decimal sign in a CSV file.")] = None


@dataclass(frozen=True)
class TrainingOptions:
    """What is trained, how and where."""

    decisions: Annotated[Files, file_option(help="Decisions on a review page; repeatable.")] = None
    method: Annotated[str, Option(help="A method of `robustpll methods`.")] = "robust_pll"
    epochs: Annotated[int | None, Option(help="Training epochs, if the method has them.")] = None
    device: Device = "auto"
    seed: Seed = 0

    def model(self, **parameters: Any) -> Any:
        """Return a classifier to fit; raise if the options do not go together."""
        from robustpll import METHODS, PLLClassifier
        from robustpll.engine.device import chosen_device

        if self.method not in METHODS:
            similar = get_close_matches(self.method, METHODS, n=1)
            question = f" Did you mean {similar[0]!r}?" if similar else ""
            message = f"--method must be one that `robustpll methods` lists; got {self.method!r}."
            raise InputError(message + question)
        chosen_device(self.device)
        model = PLLClassifier(self.method, random_state=self.seed, device=self.device)
        parameters |= {"epochs": self.epochs}
        passed = {name: value for name, value in parameters.items() if value is not None}
        return model.set_params(**{f"method__{name}": passed[name] for name in passed})


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer: each field of its dataclass parameters becomes an option."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    for parameter in parameters:
        options = [parameter]
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            options = [*inspect.signature(groups[parameter.name]).parameters.values()]
        flat += [option.replace(kind=option.KEYWORD_ONLY) for option in options]

    @functools.wraps(command)
    def expanded(**options: Any) -> None:
        for name, group in groups.items():
            values = {field.name: options.pop(field.name) for field in fields(group)}
            options[name] = group(**values)
        command(**options)

    expanded.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return expanded


def read(
    path: Path,
    columns: ColumnOptions,
    file: FileOptions,
    *,
    images: Text = None,
    show: bool = False,
) -> "Table":
    """Return the rows that parse; print the others and suspicious class names on stderr.

    Too large a table is refused, and rows that do not parse end the command, unless they may be
    skipped; but not if the table is only to `show`. The column `images` is no feature.
    """
    from robustpll.tables.read import BAD_ROWS, is_list_of_bad_rows, read_table

    arguments = asdict(columns) | asdict(file) | {"errors_to": columns.errors}
    arguments |= {"ignore": [*(columns.ignore or ()), *([images] if images else ())]}
    del arguments["errors"], arguments["skip_bad_rows"]
    with refusals(), warnings_said(Warning, f"{path}: "):
        if not show:
            refuse_too_large(path)
        if columns.errors is not None:
            refuse_unwritable(columns.errors, (path,), is_list_of_bad_rows, BAD_ROWS)
        try:
            table = read_table(path, on_bad_rows="skip", **arguments)
        except InputError as error:
            if images is None or repr(images) not in str(error):
                raise
            raise InputError(str(error).replace("`ignore`", "`images`")) from error
    for messages in (_bad_row_messages, _class_name_messages):
        for message in messages(table, path, columns):
            say(message)
    if table.bad and not show and not columns.skip_bad_rows:
        raise Exit(1)
    return table


def _bad_row_messages(table: "Table", path: Path, columns: ColumnOptions) -> Iterator[str]:
    """Yield how many rows do not parse, the first of them, and the remedies."""
    from robustpll.tables.labels import NO_ANSWER
    from robustpll.tables.source import PARQUET

    bad, where = table.bad, "row" if path.suffix.lower() in PARQUET else "line"
    if not bad:
        return
    yield f"{path}: {len({row.line for row in bad}):,} rows do not parse and are left out:"
    yield from (f"  {where} {row.line}: {as_options(str(row))}" for row in bad[:BAD_ROWS_SHOWN])
    if len(bad) > BAD_ROWS_SHOWN:
        remedy = "" if columns.errors else "; pass --errors FILE to list all of them in a file"
        yield f"  and {len(bad) - BAD_ROWS_SHOWN:,} more{remedy}"
    if columns.errors:
        yield f"{columns.errors} lists them."
    if unanswered := sum(row.reason in NO_ANSWER for row in bad):
        yield (
            f'{unanswered:,} of them have no candidates. Pass --unanswered "all classes" to keep '
            'them with all classes as candidates; the default is "error".'
        )
    if not columns.skip_bad_rows:
        yield "Correct these rows, or pass --skip-bad-rows to leave them out."


def _class_name_messages(table: "Table", path: Path, columns: ColumnOptions) -> Iterator[str]:
    """Yield class names that may be one class, and words that may mean "no answer"."""
    from robustpll.labels.candidates import Candidates
    from robustpll.tables.labels import Spellings

    if table.y is None or (y := Candidates.of(table.y)).classes.dtype.kind != "U":
        return
    informative = y.matrix[y.sizes < len(y.classes)]  # sets of all classes say nothing
    counts = informative.sum(0).tolist()
    spellings = Spellings.of(dict(zip(y.classes.tolist(), counts, strict=True)))

    def listed(names: dict[str, int]) -> str:
        return some_of((f"{name!r} ({rows:,} rows)" for name, rows in names.items()), MAX_NAMES)

    if groups := spellings.groups:
        yield f"{path}: these names may mean the same class. If so, correct the table:"
        yield from (f"  {listed(names)}" for names in groups[:MAX_GROUPS])
        if len(groups) > MAX_GROUPS:
            yield f"  and {len(groups) - MAX_GROUPS:,} more groups"
    if words := spellings.placeholders:
        option, prefix = ("ignore", columns.indicators) if columns.indicators else ("missing", "")
        remedy = " ".join(f"--{option} {prefix + word!r}" for word in words)
        yield f'{path}: {listed(words)} became a class. Pass {remedy} if it means "no answer".'


def candidate_summary(y: "Candidates") -> str:
    """Return one line about classes and candidates."""
    return (
        f"{len(y.classes):,} classes; {y.sizes.mean():.2f} candidates a row on average; "
        f"{(y.sizes == 1).mean():.1%} of the rows have one candidate"
    )
