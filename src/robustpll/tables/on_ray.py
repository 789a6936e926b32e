"""Prediction of a Parquet dataset of any size by Ray Data, on all machines of a cluster."""

import base64
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.parquet import read_metadata

from robustpll.engine.cluster import ENVIRONMENT, RayExecutor
from robustpll.errors import InputError, some_of
from robustpll.estimator.model_file import load
from robustpll.tables.stream import measures_of

ADDED = ("label", "probability", "uncertainty", "entropy")
PREDICTING = 0.75  # of a core; the rest reads and writes
ROWS = 4096  # of a batch


class Predictor:
    """Adds predictions to batches of rows; each process of Ray loads the model once."""

    def __init__(self, content: bytes, device: str) -> None:
        with tempfile.TemporaryDirectory() as folder:  # other machines may not see the file
            path = Path(folder) / "model.pll"
            path.write_bytes(content)
            self.model = load(path, device=device)

    def __call__(self, batch: pa.Table) -> pa.Table:
        names, X = getattr(self.model, "feature_names_in_", None), batch.to_pandas()
        X = X.to_numpy(np.float64) if names is None else X[list(names)]
        predicted, columns = measures_of(self.model.predict_opinion(X))
        columns["label"] = self.model.classes_[predicted]
        for name in ADDED:
            batch = batch.append_column(name, pa.array(columns[name]))
        return batch


def predict_parquet(
    model: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    cluster: str = "ray",
    device: str = "auto",
) -> int:
    """Predict all rows of a Parquet dataset by Ray Data; return how many there are.

    The new folder `out` gets Parquet files with the columns of the source, and the columns label,
    probability, uncertainty and entropy. Its rows may be in another order. On several machines,
    both folders must be on a file system that all of them share.

    Parameters
    ----------
    model : path
        A model file. It learned from a DataFrame, or from an array that has all columns.
    source : path
        A Parquet file, or a folder of such files.
    out : path
        A folder that is not there yet. It appears when all files are complete.
    cluster : str
        "ray" or "ray://host:port", as for `PLLClassifier`.
    device : {"auto", "cpu", "cuda"}
        With GPUs, one process per GPU predicts; else one per core.
    """
    source, out = Path(source).resolve(), Path(out).resolve()
    files = sorted(source.rglob("*.parquet")) if source.is_dir() else [source]
    if out.exists() or not out.parent.is_dir():
        raise InputError(f"out={str(out)!r} must be a new folder, in one that is there.")
    if cluster != "ray" and ":" not in cluster:
        raise InputError(f"cluster must be 'ray' or 'ray://HOST:PORT' here; got {cluster!r}.")
    if not files or not all(file.is_file() for file in files):
        raise InputError(f"source={str(source)!r} must be a Parquet file, or a folder of them.")
    classifier, metadata = load(model, device="cpu"), [read_metadata(file) for file in files]
    for file, about in zip(files, metadata, strict=True):
        _refuse_columns(classifier, file, about)
    executor = RayExecutor(None if cluster == "ray" else cluster, device)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        _predict(executor, Path(model).read_bytes(), files, temporary)
        temporary.rename(out)
    finally:
        executor.close()
        shutil.rmtree(temporary, ignore_errors=True)  # if something failed
    return sum(about.num_rows for about in metadata)


def _predict(executor: RayExecutor, model: bytes, files: Sequence[Path], folder: Path) -> None:
    """Predict files with a model of this content, and write files to a folder."""
    import ray.data

    place, kind = ("cuda", "GPU") if executor.uses_gpus else ("cpu", "CPU")
    share: Any = {"num_gpus": 1} if executor.uses_gpus else {"num_cpus": PREDICTING}
    most = int(executor.ray.cluster_resources()[kind])
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows: Any = ray.data.read_parquet([*map(str, files)], num_cpus=1 - PREDICTING)
    rows.map_batches(
        Predictor,
        fn_constructor_args=(model, place),
        batch_size=ROWS,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most),
        runtime_env={"env_vars": ENVIRONMENT},
        **share,
    ).write_parquet(str(folder), ray_remote_args={"num_cpus": 1 - PREDICTING})


def _refuse_columns(classifier: Any, file: Path, about: Any) -> None:
    """Raise InputError if a file lacks features, has columns to be added, or holds pickles."""
    names = [about.schema.column(number).path for number in range(about.num_columns)]
    features = getattr(classifier, "feature_names_in_", None)
    if features is None and len(names) != classifier.n_features_in_:
        count = f"{len(names)} columns, but the model learned from {classifier.n_features_in_}"
        raise InputError(f"{file} has {count}. Fit it with a DataFrame, whose columns have names.")
    if missing := [name for name in ([] if features is None else features) if name not in names]:
        raise InputError(f"{file} lacks columns of the training: {some_of(missing, 10)}.")
    if clash := [name for name in ADDED if name in names]:
        raise InputError(f"{file} has a column {clash[0]!r} already. Rename it.")
    schema = base64.b64decode((about.metadata or {}).get(b"ARROW:schema", b""))
    if b"ray.data.arrow" in schema:  # reading them may execute what a file says
        raise InputError(f"{file} has columns of Ray's own types. Convert them to plain ones.")
