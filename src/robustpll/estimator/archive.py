"""Fitted scikit-learn estimators as bytes of skops, with the types that it trusts by default."""

import io
import json
import re
import zipfile
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from robustpll.errors import InputError, some_of
from robustpll.methods.wrapped import probability_of

SCHEMA = "schema.json"  # of an archive; its other files are arrays
NATIVE = "sklearn.svm"  # skops trusts it, but libsvm reads arrays without looking at their lengths
ARRAY = re.compile(r"\d+\.npy")


def estimator_as_tensor(estimator: Any) -> Tensor:
    """Return an estimator as bytes; refuse types that `estimator_of_tensor` would not trust."""
    import skops.io

    name = type(estimator).__name__
    try:
        content = skops.io.dumps(estimator)
        untrusted = skops.io.get_untrusted_types(data=content)
    except Exception as error:
        raise InputError(f"The model is not saved: skops cannot store {name} ({error}).") from error
    if untrusted:
        raise InputError(
            f"The model is not saved: skops does not trust these types of {name} in a file: "
            f"{some_of(untrusted)}. Use export_onnx(path), or an estimator without them such as "
            "Wrapped('logistic_regression')."
        )
    tensor = torch.from_numpy(np.frombuffer(_renumbered(content), dtype=np.uint8).copy())
    try:
        estimator_of_tensor(tensor)
    except Exception as error:
        fault = f"{name} cannot be read again ({error})"
        raise InputError(f"The model is not saved: {fault}.") from error
    return tensor


def _renumbered(content: bytes) -> bytes:
    """The archive with ids counted from 0 and no dates, so that equal estimators are equal."""
    numbers: dict[str, str] = {}

    def renumber(match: re.Match[str]) -> str:
        return match[1] + numbers.setdefault(match[2], str(len(numbers))) + match[3]

    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(target, "w") as copy:
        # quotes within a string are escaped, so that these are keys
        names = r'("(?:__id__": |file": "))(\d+)(\.npy"|\b)'
        schema = re.sub(names, renumber, source.read(SCHEMA).decode())
        files = {SCHEMA: schema.encode()}
        for name in source.namelist():
            stem, _, kind = name.partition(".")
            if name != SCHEMA:
                files[f"{numbers.get(stem, stem)}.{kind}"] = source.read(name)
        for name, data in sorted(files.items()):
            copy.writestr(zipfile.ZipInfo(name), data)
    return target.getvalue()


def estimator_of_tensor(content: Tensor) -> Any:
    """Return the estimator of these bytes; raise any error if they hold more than plain types."""
    import skops.io

    data = content.numpy().tobytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        plain = all(
            entry.compress_type == zipfile.ZIP_STORED and (name == SCHEMA or ARRAY.fullmatch(name))
            for name, entry in entries.items()
        )
        sizes = {name: entry.file_size for name, entry in entries.items()}
        # nothing is compressed, so that an archive cannot hold more than its own size
        if not plain or len(entries) < len(archive.infolist()) or sum(sizes.values()) > len(data):
            raise ValueError("the archive of its estimator has other files than arrays")
        read = [0]  # bytes of arrays, each as often as it is named

        def count(node: dict[str, Any]) -> dict[str, Any]:
            read[0] += sizes.get(str(node.get("file")), 0)
            if str(node.get("__module__")).startswith(NATIVE):
                raise ValueError(f"{NATIVE} is not read from a file, as wrong numbers may crash it")
            return node

        json.loads(archive.read(SCHEMA), object_hook=count)
    if read[0] > len(data):
        raise ValueError("the archive of its estimator names an array more than once")
    return skops.io.loads(data, trusted=[])  # its default types, never more


def check_answers(learned: dict[str, Any], features: int) -> None:
    """Raise any error unless an estimator predicts so many features, with its columns."""
    estimator, columns = learned["estimator"], learned["columns"]
    if not isinstance(estimator, BaseEstimator) or not columns.any():
        raise TypeError("it has no estimator with a class")
    if getattr(estimator, "n_features_in_", None) != features:
        raise ValueError(f"its estimator does not take {features} features")
    probability = probability_of(learned, np.zeros((3, features), dtype=np.float32))
    if not np.isfinite(probability).all():
        raise ValueError("its estimator predicts numbers that are not finite")
