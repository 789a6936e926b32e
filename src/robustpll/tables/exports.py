"""Exports of labelling tools: Label Studio, Argilla 2 and doccano. Only JSON is parsed."""

import json
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from robustpll.errors import InputError, some_of
from robustpll.labels.votes import Votes
from robustpll.tables.source import Batch, Source

LARGEST = 2**29  # bytes; parsed JSON takes about ten times as much memory
PREFIX = "answer: "  # of the columns of answers, one for each annotator
ID = "id"
REGION = {"start", "end", "x", "y", "ranges", "time"}  # an answer with these is about a part
LEFT_OUT = ("discarded", "draft")  # states of responses that are no answers
Record = dict[str, Any]


class Answer(NamedTuple):
    """An answer to a question about a record."""

    question: str
    annotator: str
    names: list[str] | None  # None if it is no choice of classes
    kind: str = ""  # of an answer without names
    target: str = ""  # what the question is about


def _choices(value: Any) -> list[str] | None:
    """Return class names from a name or several; None for anything else."""
    names = value if isinstance(value, list) else [value]
    return names if all(isinstance(name, str) for name in names) else None


def _dicts(values: Any) -> list[Record]:
    """Return the objects of a list; others may be anything in a damaged file."""
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


class LabelStudio:
    """The JSON export: tasks with `data` and `annotations`."""

    title = "Label Studio"
    content = ("data",)  # what is labelled

    def recognises(self, record: Record) -> bool:
        return isinstance(record.get("data"), dict)

    def features(self, record: Record) -> Record:
        return {**record["data"]}

    def answers(self, record: Record) -> Iterator[Answer]:
        for annotation in _dicts(record.get("annotations")):
            who = annotation.get("completed_by", "unknown")
            if isinstance(who, dict):
                who = who.get("email") or who.get("id", "unknown")
            for result in _dicts(annotation.get("result")):
                kind, value, question = (result.get(key) for key in ("type", "value", "from_name"))
                value = _dict(value)
                is_choice = kind == "choices" and not REGION & {*value}
                names = _choices(value.get("choices")) if is_choice else None
                if isinstance(question, str) and not annotation.get("was_cancelled"):
                    yield Answer(question, str(who), names, str(kind), str(result.get("to_name")))

    def predicted(self, record: Record, question: Answer, label: str, score: float, by: str) -> Any:
        target = question.target or next(iter(record["data"]), "")
        result = {"from_name": question.question, "to_name": target, "type": "choices"}
        ours = {"model_version": by, "score": score}
        ours |= {"result": [result | {"value": {"choices": [label]}}]}
        old = _dicts(record.get("predictions"))
        others = (one for one in old if one.get("model_version") != by)
        return record | {"predictions": [*others, ours]}


class Argilla:
    """Records of Argilla 2 as `to_json` writes them, or as its API does."""

    title = "Argilla"
    content = ("fields",)

    def recognises(self, record: Record) -> bool:
        return isinstance(record.get("fields"), dict)

    def features(self, record: Record) -> Record:
        return {**_dict(record.get("metadata")), **record["fields"]}

    def answers(self, record: Record) -> Iterator[Answer]:
        responses = record.get("responses")
        flat = _dicts(responses)
        for one in _dicts(responses):  # of the API: all questions of a user
            for name, value in _dict(one.get("values")).items():
                content = value if isinstance(value, dict) else {"value": value}
                flat.append(one | content | {"question_name": name})
        for name, several in _dict(responses).items():
            flat += [one | {"question_name": name} for one in _dicts(several)]
        for one in flat:
            name, value, status = (one.get(key) for key in ("question_name", "value", "status"))
            if isinstance(name, str) and value is not None and status not in LEFT_OUT:
                kind = type(value).__name__
                yield Answer(name, str(one.get("user_id", "unknown")), _choices(value), kind)

    def predicted(self, record: Record, question: Answer, label: str, score: float, by: str) -> Any:
        name, ours = question.question, {"value": label, "score": score, "agent": by}
        old = record.get("suggestions")
        if isinstance(old, list):
            others = (one for one in _dicts(old) if one.get("question_name") != name)
            return record | {"suggestions": [*others, {"question_name": name, **ours}]}
        return record | {"suggestions": _dict(old) | {name: ours}}


class Doccano:
    """JSONL of doccano, with `label` (or `labels`, `cats`), and a `username` if there is one."""

    title = "doccano"
    content = ("text", "filename")
    keys = ("label", "labels", "cats")
    users = ("username", "annotator", "user")

    def recognises(self, record: Record) -> bool:
        return any(key in record for key in ("text", "filename", "annotations", *self.keys))

    def features(self, record: Record) -> Record:
        fields = _dict(record.get("meta")) | record
        others = (*self.keys, *self.users, ID, "Comments", "annotations", "meta")
        return {name: value for name, value in fields.items() if name not in others}

    def answers(self, record: Record) -> Iterator[Answer]:
        who = next((str(record[key]) for key in self.users if record.get(key)), "unknown")
        for key in self.keys:
            if record.get(key):
                yield Answer(key, who, _choices(record[key]), "spans or numbers")
        for one in _dicts(record.get("annotations")):  # of early versions: numbers of classes
            names = None if "start_offset" in one else [str(one.get("label"))]
            yield Answer("annotations", str(one.get("user", who)), names, "spans")

    def predicted(self, record: Record, question: Answer, label: str, score: float, by: str) -> Any:
        return record | {question.question.replace("annotations", "label"): [label]}


TOOLS: tuple[Any, ...] = (LabelStudio(), Argilla(), Doccano())


class ExportFile(Source):
    """An export to read from: scalar fields are features, and each annotator has a column."""

    delimiter: ClassVar[str] = ","  # of a CSV file with the same columns
    left_out: ClassVar[tuple[str, ...]] = (ID,)

    @cached_property
    def records(self) -> list[Record]:
        """The records, from a JSON list or from lines of JSON."""
        path = Path(self.content)
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} has more than {LARGEST:,} bytes. Export it in parts.")
        try:
            text = path.read_bytes().decode("utf-8-sig")
            is_list = text.lstrip()[:1] == "["
            lines = (line for line in text.split("\n") if line.strip())
            records = json.loads(text) if is_list else [*map(json.loads, lines)]
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not JSON, or nested too deeply ({error}).") from error
        self.__dict__["is_list"] = is_list
        if not records or not all(isinstance(record, dict) for record in records):
            raise InputError(f"{path} must hold tasks or records, in a JSON list or one per line.")
        return list(records)

    @cached_property
    def tool(self) -> Any:
        """The tool that wrote the file."""
        for tool in TOOLS:
            if tool.recognises(self.records[0]):
                others = [n for n, one in enumerate(self.records) if not tool.recognises(one)]
                if not others:
                    return tool
                raise InputError(f"{self.title}: not of {tool.title}: records {some_of(others)}.")
        rule = "is no export of Label Studio (JSON), Argilla 2 (to_json) or doccano (JSONL)"
        raise InputError(f"{self.title} {rule}: its first record has {some_of(self.records[0])}.")

    @cached_property
    def items(self) -> list[str]:
        """The name of the item of each record; several annotators may have one each."""
        ids = [one.get(ID) for one in self.records]
        return [f"#{number}" if one is None else str(one) for number, one in enumerate(ids)]

    @cached_property
    def question(self) -> Answer | None:
        """The question that is answered; None if the export has no answers."""
        first = dict[str, Answer]()
        for record in self.records:
            for answer in self.tool.answers(record):
                first.setdefault(answer.question, answer)
        wanted = self.reading.question
        if wanted is None and len(first) > 1:
            several = f"has answers to several questions ({some_of(map(repr, first))})"
            raise InputError(f"{self.title} {several}. Name one as `question`.")
        return first.get(wanted) if wanted else next(iter(first.values()), None)

    @cached_property
    def answers(self) -> pd.DataFrame:
        """Class names, sets of names or None, by item and annotator."""
        rows = list[tuple[str, str, Any]]()
        for item, record in zip(self.items, self.records, strict=True):
            for answer in self.tool.answers(record):
                if self.question is None or answer.question != self.question.question:
                    continue
                if answer.names is None:
                    fault = f"{self.title}, record {item}: {answer.question!r} holds {answer.kind}"
                    raise InputError(f"{fault}, not a choice of classes. Pass another `question`.")
                label = answer.names[0] if len(answer.names) == 1 else frozenset(answer.names)
                rows.append((item, answer.annotator, label))
        items, annotators, labels = zip(*rows, strict=True) if rows else ((), (), ())
        duplicates: Any = self.reading.duplicates or "error"
        long = Votes.long(items, annotators, labels, duplicates=duplicates).answers
        return pd.DataFrame(long.reindex(dict.fromkeys(self.items)).astype(object))

    @property
    def prefix(self) -> str | None:
        """What columns of answers begin with; None without answers."""
        return PREFIX if any(name.startswith(PREFIX) for name in self.names) else None

    @cached_property
    def table(self) -> Any:
        """The rows, as pyarrow's Table."""
        first, content = dict[str, Record](), dict[str, list[Any]]()
        for item, record in zip(self.items, self.records, strict=True):
            first.setdefault(item, self.tool.features(record))
            labelled = [record.get(key) for key in self.tool.content]
            if content.setdefault(item, labelled) != labelled:
                rule = "have the same id, but not the same content. Give each item one id"
                raise InputError(f"{self.title}: several records {item!r} {rule}.")
        names = dict.fromkeys(name for row in first.values() for name in row)
        if odd := [name for name in names if name.startswith(PREFIX)]:
            raise InputError(f"{self.title} has a field {odd[0]!r}. Rename it.")
        try:
            columns = {ID: pa.array([*first])}
            for name in names:
                column = _column([row.get(name) for row in first.values()])
                columns |= {} if column is None else {name: column}
            for annotator, answers in self.answers.items():
                texts = [*map(_text, answers)]
                columns[f"{PREFIX}{annotator}"] = pa.array(texts, pa.string())
            return pa.table(columns)
        except UnicodeError as error:
            raise InputError(f"{self.title} has text that is not Unicode ({error}).") from error

    @cached_property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def batches(self, names: Sequence[str], most_rows: int | None = None) -> Iterator[Batch]:
        cells, size = self.table.select([*names]), most_rows or self.table.num_rows
        for start in range(0, self.table.num_rows, size):
            part = cells.slice(start, size)
            yield Batch(part, np.arange(start, start + part.num_rows), [])

    def with_predictions(self, predictions: pd.DataFrame, by: str) -> bytes:
        """Return the file with predictions; they have a `label` ("" for none) and `probability`."""
        question = self.question or Answer(self.reading.question or "", "", None)
        if not question.question:
            raise InputError(f"{self.title} has no answers. Pass the name of the `question`.")
        row = {item: number for number, item in enumerate(dict.fromkeys(self.items))}
        labels, scores = (predictions[name].to_dict() for name in ("label", "probability"))
        records = []
        for item, record in zip(self.items, self.records, strict=True):
            records.append(record)
            if label := labels.get(row[item]):
                score = float(scores[row[item]])
                records[-1] = self.tool.predicted(record, question, label, score, by)
        if self.__dict__["is_list"]:
            return f"{json.dumps(records, indent=1)}\n".encode()
        return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def _text(answer: Any) -> str | None:
    """Return an answer as the cell of a table: a name, a JSON list of names, or None."""
    if isinstance(answer, frozenset):
        return json.dumps(sorted(answer)) if answer else None
    return answer if isinstance(answer, str) else None


def _column(values: list[Any]) -> Any:
    """Return a column of text or numbers; None if some cells are lists or objects."""
    values = [None if value != value else value for value in values]  # NaN  # noqa: PLR0124
    known = [value for value in values if value is not None]
    if not known or any(isinstance(value, list | dict) for value in known):
        return None
    as_type: Any = _float
    if any(isinstance(value, str) for value in known):
        as_type = str
    elif all(isinstance(value, int) and abs(value) < 2**53 for value in known):
        as_type = int
    return pa.array([None if value is None else as_type(value) for value in values])


def _float(value: Any) -> float:
    return float(value) if abs(value) <= sys.float_info.max else np.inf  # refused by row
