"""What a model file is made of: tensors, a description in JSON, and a checksum of both."""

import hashlib
import json
import stat
from pathlib import Path
from reprlib import repr as shown
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustpll.errors import InputError, ModelFileError
from robustpll.estimator.model_schema import DESCRIPTION

FORMAT = 2  # raised whenever an older reader would misread a file
READABLE = (1, FORMAT)  # 1 knows of no recalibration
KEY = "robustpll"
SUM = "robustpll.sha256"  # of the content; files of version 0.1 have none
LONGEST = 50_000_000  # characters of a description; a header may have 100 million bytes
REMEDY = "Pass a file that robustpll fit or a classifier's save() wrote."


def refuse_other_than_file(path: Path) -> None:
    """A pipe or a device would be waited for; a folder is none."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError as error:
        raise ModelFileError(f"There is no file {path}. {REMEDY}") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}. {REMEDY}") from error
    if not stat.S_ISREG(kind):
        raise ModelFileError(
            f"{path} is not a model file, but a folder, a pipe or a device. {REMEDY}"
        )


def checksum(description: str, tensors: dict[str, Tensor]) -> str:
    """Of all that a model file says: SHA-256 over the description and the tensors, in hex.

    Names, types, shapes and bytes of the tensors count; their order in the file does not.
    """
    text = description.encode()
    whole = hashlib.sha256(f"{len(text)}:".encode() + text)
    for name, tensor in sorted(tensors.items()):
        whole.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        whole.update(np.asarray(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)).data)
    return whole.hexdigest()


def infinite_tensor(tensors: dict[str, Tensor]) -> str | None:
    """The name of the first tensor with a number that is not finite; None if there is none."""
    names = (
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not bool(tensor.isfinite().all())
    )
    return next(names, None)


def content_of(about: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The bytes of a file that `read` accepts; of equal models they are equal."""
    from safetensors.torch import save

    description = json.dumps(about, default=_plain)
    _refuse_unreadable(description, tensors)
    content = save(tensors, {KEY: description, SUM: checksum(description, tensors)})
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # which came in any order
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def _plain(value: Any) -> Any:
    """Numbers of numpy's types as Python's own, for JSON."""
    return value.item()


def _refuse_unreadable(description: str, tensors: dict[str, Tensor]) -> None:
    """What `load` would refuse is not written."""
    odd = infinite_tensor(tensors)
    if odd is not None:
        raise InputError(
            f"The model is not saved: tensor {odd!r} has numbers that are not finite. Fit it "
            "again, with a lower learning_rate."
        )
    fault = DESCRIPTION.fault(json.loads(description))
    if fault is None and len(description) > LONGEST:
        fault = f" has {len(description):,} characters, and at most {LONGEST:,} are read"
    if fault is not None:
        raise InputError(
            f"The model is not saved, as it could not be read: its description{fault}."
        )


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of a file that is whole and of this format."""
    from safetensors import SafetensorError, safe_open

    refuse_other_than_file(path)
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). {REMEDY}"
        ) from error
    if len(metadata.get(KEY, "")) > LONGEST:
        raise ModelFileError(f"{path} has a description of more than {LONGEST:,} characters.")
    about = _about(path, metadata)
    if SUM in metadata and metadata[SUM] != checksum(metadata[KEY], tensors):
        raise ModelFileError(
            f"{path} is damaged: its content is not what was written. Copy it anew, or save the "
            "model again."
        )
    fault = DESCRIPTION.fault(about)
    if fault is not None:
        raise ModelFileError(f"{path} is damaged: its description{fault}.")
    odd = infinite_tensor(tensors)
    if odd is not None:
        raise ModelFileError(
            f"{path} is of no use: tensor {odd!r} has numbers that are not finite. Fit the model "
            "again, with a lower learning_rate."
        )
    return about, tensors


def _about(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The description, if it is of a format that can be read."""
    nothing = f"{path} holds tensors, but no description of a robustpll model. {REMEDY}"
    try:
        about: dict[str, Any] = json.loads(metadata[KEY])
        found = about["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(nothing) from error
    if isinstance(found, bool) or found not in READABLE:
        raise ModelFileError(
            f"{path} has format {shown(found)}, this version reads up to {FORMAT}. It was written "
            f"by robustpll {shown(about.get('version'))}: install that version."
        )
    return about
