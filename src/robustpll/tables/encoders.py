"""Features of pictures and texts by an encoder: a frozen network, from a file or by its name."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import write_table

from robustpll._files import write_whole
from robustpll.errors import InputError, counted, some_of
from robustpll.tables.images import REASONS, decoded, located
from robustpll.tables.source import (
    PARQUET,
    SHOWN,
    CsvText,
    Reading,
    check_names,
    opened_source,
)

NORMALIZE = {  # mean and standard deviation of each colour, from 0 to 1
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5,) * 3, (0.5,) * 3),
    "none": ((0.0,) * 3, (1.0,) * 3),
}
SIDE = 224  # pixels of pictures, if the encoder takes any
MOST_TOKENS = 256  # of a text; the rest is cut
BATCH, CHUNK = 32, 1024  # rows that are encoded, and stored, at once
FORMS = "pass FILE.onnx, or a name that timm (pictures; NAME:FILE.safetensors has its weights) or "
FORMS += "sentence-transformers (texts) knows"
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Encoder:
    """A network that turns pictures or texts into features."""

    run: Callable[[Any], Any]  # from texts, or scaled pictures (n, 3, h, w), to (n, d)
    size: tuple[int, int] | None = None  # height and width of pictures; None for texts
    colours: tuple[Sequence[float], Sequence[float]] = NORMALIZE["imagenet"]  # mean, deviation

    @classmethod
    def of(cls, name: str, *, pictures: bool, normalize: str | None = None) -> "Encoder":
        """Open what `--encoder` names; nothing in a file is executed but the graph of a network."""
        if normalize not in (None, *NORMALIZE):
            raise InputError(f"normalize={normalize!r}: it must be one of {', '.join(NORMALIZE)}.")
        network, _, file = name.rpartition(":") if name.endswith(".safetensors") else ("", "", name)
        path = Path(file)
        ending = path.suffix if path.suffix in (".onnx", ".safetensors") else ""
        if ending and not path.is_file():
            raise InputError(f"There is no file {path}. Check the path and the current folder.")
        if ending == ".onnx" and not network:
            encoder = _onnx_pictures(path) if pictures else _onnx_texts(path)
        elif ending == ".safetensors" and network and pictures:
            encoder = _timm(network, path)
        elif not ending and not network:
            encoder = _timm(name, None) if pictures else _sentences(name)
        else:
            raise InputError(f"encoder={name!r} is not known: {FORMS}.")
        return encoder if normalize is None else replace(encoder, colours=NORMALIZE[normalize])

    def features(self, cells: Sequence[str | Path]) -> Floats:
        """Encode texts, or pictures in files, (n, d); those that cannot be read are NaN."""
        parts = []
        for start in range(0, len(cells), BATCH):
            batch: Any = cells[start : start + BATCH]
            faults: dict[int, str] = {}
            if self.size is not None:
                batch, faults = decoded(batch, self.size, grey=False)
                mean, deviation = (np.array(part, "f4")[:, None, None] for part in self.colours)
                batch = (batch.astype(np.float32) / 255 - mean) / deviation
            parts.append(np.array(self.run(batch), dtype=np.float32))
            parts[-1][[*faults]] = np.nan
        return np.concatenate(parts)


@contextmanager
def _needed(install: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InputError(f"This encoder needs {error.name}. Run pip install {install}.") from error


@contextmanager
def _explained(fault: str, remedy: str = "") -> Iterator[None]:
    """Turn any error of these packages, which raise many kinds, into an InputError."""
    try:
        yield
    except Exception as error:
        reason = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
        raise InputError(f"{fault} ({reason}){remedy}.") from error


def _session(path: Path) -> Any:
    with _needed("'robustpll[onnx]'"):
        import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()  # OMP_NUM_THREADS, or all cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # cores may be busy
    with _explained(f"{path} is not an ONNX file that can be run"):
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _answer(session: Any, rows: dict[str, Any], path: Path) -> Any:
    with _explained(f"{path} cannot encode these rows", ". Export it anew"):
        return session.run(None, rows)[0]


def _onnx_pictures(path: Path) -> Encoder:
    session = _session(path)
    entry = session.get_inputs()[0]
    if len(entry.shape) != 4 or entry.shape[1] != 3:
        raise InputError(f"{path} takes {entry.shape}, not pictures (n, 3, height, width).")

    is_fixed = isinstance(entry.shape[0], int)
    step = entry.shape[0] if is_fixed else BATCH
    kind = np.float16 if entry.type == "tensor(float16)" else np.float32

    def run(pictures: Floats) -> Any:
        answers = []
        for start in range(0, len(pictures), step):
            part = pictures[start : start + step].astype(kind)
            padding = np.zeros((step - len(part) if is_fixed else 0, *part.shape[1:]), kind)
            rows = {entry.name: np.concatenate([part, padding])}
            answers.append(_answer(session, rows, path)[: len(part)])
        answer = np.concatenate(answers)
        axes = {3: (1,), 4: (2, 3)}.get(answer.ndim, ())  # of parts of a picture
        return answer.mean(axes)

    height, width = (side if isinstance(side, int) else SIDE for side in entry.shape[2:])
    return Encoder(run, (height, width))


def _onnx_texts(path: Path) -> Encoder:
    session, words = _session(path), path.with_name("tokenizer.json")
    names = [entry.name for entry in session.get_inputs()]
    if not words.is_file():
        raise InputError(f"There is no file {words}. Copy the encoder's tokenizer.json there.")
    with _needed("tokenizers"):
        from tokenizers import Tokenizer
    with _explained(f"{words} is not the file of a tokenizer"):
        tokenizer = Tokenizer.from_file(str(words))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.enable_padding()

    def run(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch([*texts])
        mask = np.array([text.attention_mask for text in encoded])
        known = {"input_ids": np.array([text.ids for text in encoded]), "attention_mask": mask}
        known["token_type_ids"] = np.zeros_like(mask)
        if unknown := {*names} - {*known}:
            raise InputError(f"{path} takes {some_of(unknown)}, not only {', '.join(known)}.")
        answer = _answer(session, {name: known[name] for name in names}, path)
        if answer.ndim != 3:
            return answer
        answer = (answer * mask[..., None]).sum(1) / mask.sum(1, keepdims=True).clip(1)
        return answer / np.linalg.norm(answer, axis=1, keepdims=True).clip(1e-12)

    return Encoder(run)


def _timm(name: str, file: Path | None) -> Encoder:
    """A network of timm, with weights of a file, or those that timm gets."""
    with _needed("timm"):
        import timm
    import torch
    from safetensors.torch import load_file

    with _explained(f"encoder={name!r} cannot be opened", f": {FORMS}"):
        network = timm.create_model(name, pretrained=file is None, num_classes=0).eval()
    with _explained(f"{file} does not hold weights of {name}"):
        absent = network.load_state_dict(load_file(file), False).missing_keys if file else ()
    if absent:
        raise InputError(f"{file} lacks weights of {name}: {some_of(absent)}.")

    def run(pictures: Floats) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(pictures)).numpy()

    about = network.pretrained_cfg
    return Encoder(run, tuple(about["input_size"][1:]), (about["mean"], about["std"]))


def _sentences(name: str) -> Encoder:
    """A network of sentence-transformers, with weights that this package gets."""
    with _needed("sentence-transformers"):
        from sentence_transformers import SentenceTransformer
    # weights in other formats than safetensors may run programs
    with _explained(f"encoder={name!r} cannot be opened", f": {FORMS}"):
        network = SentenceTransformer(name, model_kwargs={"use_safetensors": True})
    return Encoder(lambda texts: network.encode([*texts], normalize_embeddings=True))


def embed(
    path: Path,
    out: Path,
    column: str,
    encoder: Encoder,
    *,
    about: str,
    reading: Reading,
    root: Path | None = None,
    skip_bad_rows: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, int, list[str]]:
    """Write a table with the features of a column as columns e0, e1, ...

    Return its rows, the features, and rows that are left out because they have no features; such
    rows are an error unless `skip_bad_rows`. Finished parts are stored beside `out`. A further call
    continues there if the column and `about`, which describes the encoder, are the same. `progress`
    gets the numbers of rows.
    """
    source = opened_source(path, reading)
    check_names(source.names, [column])
    batch = next(source.batches(source.names), None)
    if batch is None or not (len(batch.lines) or batch.bad):
        raise InputError(f"{path} has columns, but no rows.")
    if batch.bad:
        raise InputError(f"{path}: {source.unit} {batch.bad[0].line} {batch.bad[0]}. Correct it.")
    cells = batch.cells if isinstance(batch.cells, pa.Table) else pa.table(batch.cells)
    texts = source.texts(cells[column])
    pairs = zip(batch.lines, texts, strict=True)
    places = [f"{source.unit} {line}: {text[:SHOWN]!r}" for line, text in pairs]
    rows: list[Any] = texts
    if encoder.size is not None:
        rows = [located(text, path.parent, root or path.parent) if text else "" for text in texts]
        if not skip_bad_rows:  # before anything is computed
            named = zip(places, rows, strict=True)
            _refuse(path, [f"{place} {REASONS[row]}" for place, row in named if row in REASONS])
    folders = (str(folder.resolve()) for folder in (path.parent, root or path.parent))
    store = out.with_name(f".{out.name}.{_digits(about, *folders)}")
    parts = []
    for start in range(0, len(rows), CHUNK):
        chunk = slice(start, start + CHUNK)
        name = _digits(*texts[chunk], *map(_stamp, rows[chunk]))
        parts.append(_chunk(store / f"{name}.npy", encoder, rows[chunk]))
        progress(min(start + CHUNK, len(rows)), len(rows))
    features = np.concatenate(parts)
    is_good: NDArray[np.bool_] = np.asarray(np.isfinite(features).all(-1))
    bad = [f"{places[n]} {fault}" for n, fault in _faults(is_good, rows, encoder).items()]
    if not skip_bad_rows or not is_good.any():
        _refuse(path, bad)
    cells, features = cells.filter(is_good), features[is_good]
    names = [f"e{number}" for number in range(features.shape[1])]
    if clash := {*names} & {*source.names}:
        raise InputError(f"{path} has a column {min(clash)!r} already. Rename it.")
    write_whole(out, _content(cells, dict(zip(names, features.T, strict=True)), source, out))
    shutil.rmtree(store)
    return len(features), len(names), bad


def _stamp(row: Any) -> str:
    """Size and time of a picture, which may change between two calls."""
    about = row.stat() if isinstance(row, Path) else None
    return "" if about is None else f"{about.st_size} {about.st_mtime_ns}"


def _digits(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _refuse(path: Path, bad: list[str]) -> None:
    if bad:
        problem = counted(len(bad), "row has no features", "rows have no features")
        remedy = "Correct these rows, or leave them out by `skip_bad_rows`"
        raise InputError(f"{path}: {problem} ({some_of(bad, 3)}). {remedy}.")


def _faults(is_good: NDArray[np.bool_], rows: list[Any], encoder: Encoder) -> dict[int, str]:
    """By row, why it has no features."""
    bad = np.flatnonzero(~is_good).tolist()
    faults = decoded([rows[n] for n in bad], encoder.size)[1] if encoder.size else {}
    return {n: faults.get(number, "has infinite features") for number, n in enumerate(bad)}


def _chunk(file: Path, encoder: Encoder, rows: list[Any]) -> Floats:
    """The features of some rows, from the file if it is whole; bad pictures may be mended now."""
    with suppress(OSError, ValueError):
        stored: Floats = np.load(file, allow_pickle=False)
        if stored.ndim == 2 and len(stored) == len(rows) and stored.dtype == np.float32:
            again = np.flatnonzero(~np.isfinite(stored).all(-1))
            if len(again):
                stored[again] = encoder.features([rows[n] for n in again])
            return stored
    features, content = encoder.features(rows), io.BytesIO()
    np.save(content, features)
    file.parent.mkdir(exist_ok=True)
    write_whole(file, content.getvalue())
    return features


def _content(cells: Any, features: dict[str, Floats], source: Any, out: Path) -> bytes:
    """The bytes of the table with its features, in the format that the name of `out` ends in."""
    if out.suffix.lower() in PARQUET:
        content = io.BytesIO()
        cells = source.as_read(cells)
        for name, column in features.items():
            cells = cells.append_column(name, pa.array(column))
        write_table(cells, content)
        return content.getvalue()
    # As they are, without protection of spreadsheets: other commands read this table.
    frame = cells.to_pandas(integer_object_nulls=True)
    for name, column in frame.items():
        if column.dtype.kind in "Of":  # as objects: only features are rounded
            texts = [json.dumps([*c], ensure_ascii=False) if np.ndim(c) else c for c in column]
            frame[name] = pd.Series(texts, dtype=object)
    text, decimal = CsvText(), source.reading.decimal or "."
    delimiter = getattr(source, "delimiter", ",")
    form: Any = {"sep": delimiter, "decimal": decimal, "lineterminator": "\r\n", "index": False}
    pd.concat([frame, pd.DataFrame(features)], axis=1).to_csv(text, float_format="%.6g", **form)
    return text.getvalue().encode()
