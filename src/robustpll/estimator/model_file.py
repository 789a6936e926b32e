"""Model files: safetensors with a description in JSON and a checksum, never pickle."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from reprlib import repr as shown  # of huge values only the beginning
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from robustpll._files import write_whole
from robustpll.engine.device import chosen_device, one_thread
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Networks
from robustpll.engine.random import Blank
from robustpll.errors import InputError, ModelFileError
from robustpll.estimator.abstention import CalibrationSample
from robustpll.estimator.features import Features
from robustpll.estimator.novelty import MOST_ROWS, Reference
from robustpll.estimator.recalibration import Recalibration, Scaled, Source
from robustpll.labels.parsing import checked_classes, refuse_odd_text
from robustpll.methods import METHODS, DeepMethod, Method, RobustPll
from robustpll.methods.classical import Classical, Layout
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.estimator.classifier import CandidateClassifier

FORMAT = 2  # raised whenever an older reader would misread a file
READABLE = (1, FORMAT)  # format 1 has no recalibration
KEY = "robustpll"  # of the description in the file's metadata
SUM = "robustpll.sha256"  # of the checksum; files of version 0.1.0 have none
REFERENCE, TRIAL = "robustpll.reference", "robustpll.trial"  # names of tensors
CALLABLE = "(callable)"  # stands for a network that only the user's code can build
LONGEST = 50_000_000  # characters of a description
LARGEST = 1.7e308  # absolute value of a number in it
CLASS_NAMES = {"U": str, "i": int, "u": int, "f": float, "b": bool}  # by numpy's letter
REMEDY = "Pass a file that robustpll fit or a classifier's save() wrote."


def _integer(least: int, most: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LARGEST <= value <= LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, float) or _finite(value)  # also NaN and infinity


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or _number(value)


def _setting(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_finite, value))
    return _plain(value) and (_finite(value) or not isinstance(value, float))


# Of a description: a type or a function for values, a tuple of legal values, [schema] for lists,
# {"*": schema} for objects, {"a": schema, "b?": schema} for objects with needed and optional keys.
DESCRIPTION: Any = {
    "version": str,
    "estimator": ("PLLClassifier", "RobustPLLClassifier"),
    "params": {"*": _plain},
    "class_weight": lambda v: v is None or isinstance(v, list),
    "method": {"name": str, "fields": {"*": _setting}},
    "classes": {"type": tuple(CLASS_NAMES), "names": [_setting]},
    "features": {
        "columns": [str],
        "shape": [_integer(1, 2**40)],
        "categories": {"*": [str]},
        "fill": {"*": _finite},
        "shift": [_finite],
        "scale": [lambda v: _finite(v) and v != 0],
    },
    "n_features_in": _integer(1, 2**40),
    "feature_names_in": [str],
    "seeds": [_integer(0, 2**63 - 1)],
    "history": {"*": [_number]},
    "trust?": {
        "recalibration?": {
            "factor": lambda v: _finite(v) and v > 0,
            "of": get_args(Scaled),
            "source": get_args(Source),
            "rows": _integer(0, 2**63 - 1),
            "before": _number,
            "after": _number,
        },
        "trial?": {
            "limit": lambda v: _number(v) and v >= 0,
            "source": (*get_args(Source), None),
            "confidence": lambda v: v is None or (_number(v) and 0 < v < 1),
        },
    },
    "notes?": dict,
}


def check(value: Any, schema: Any, name: str = "its description") -> None:
    """Raise ValueError for the first value that breaks a schema.

    >>> check({"seeds": [3, "x"]}, {"seeds": [int]})
    Traceback (most recent call last):
    ValueError: its description['seeds'][1] has the value 'x', which is not allowed there
    """
    inner: list[tuple[Any, Any, Any]] = []
    if isinstance(schema, tuple):
        legal = isinstance(value, str | None) and value in schema
    elif isinstance(schema, type):
        legal = isinstance(value, schema)
    elif isinstance(schema, list):
        legal = isinstance(value, list)
        inner = [(place, item, schema[0]) for place, item in enumerate(value)] if legal else []
    elif isinstance(schema, dict):
        needed = {key for key in schema if key[-1] not in "*?"}
        legal = isinstance(value, dict) and needed <= value.keys()
        for key, item in value.items() if legal else ():
            inner.append(
                (key, item, schema.get(key, schema.get(f"{key}?", schema.get("*", object))))
            )
    else:
        legal = schema(value)
    if not legal:
        raise ValueError(f"{name} has the value {shown(value)}, which is not allowed there")
    for place, item, rule in inner:
        check(item, rule, f"{name}[{shown(place)}]")


def checksum(description: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of the description and of the tensors' names, types, shapes and bytes, in hex."""
    text = description.encode()
    digest = hashlib.sha256(f"{len(text)}:".encode() + text)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(np.asarray(flat).data)
    return digest.hexdigest()


def _infinite_tensor(tensors: dict[str, Tensor]) -> str | None:
    """The name of the first tensor with numbers that are not finite, if any."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return name
    return None


def save(classifier: "CandidateClassifier", path: Path) -> None:
    """Write a model file atomically; equal models give equal bytes."""
    import robustpll

    fitted = classifier.fitted_
    if not isinstance(fitted, Networks | Classical) or type(fitted.method) not in METHODS.values():
        owner = type(getattr(fitted, "method", fitted)).__name__
        raise InputError(
            f"{owner} is a method of your own, which a reader of the file would not have: only the "
            f"methods of the library can be saved ({', '.join(METHODS)})."
        )
    method, weight = fitted.method, classifier.class_weight
    fields = {name: getattr(method, name) for name in method.field_names()}
    trust, tensors = _abstention_to_file(classifier)
    tensors |= _learned_tensors(fitted, classifier.features_.shape)
    about = {
        "format": FORMAT,
        "version": robustpll.__version__,
        "estimator": type(classifier).__name__,
        "params": {
            name: value
            for name, value in classifier.get_params(deep=False).items()
            if isinstance(value, str | int | float | bool | np.number | None)
        },
        # pairs, since keys may be numbers
        "class_weight": [list(p) for p in weight.items()] if hasattr(weight, "items") else None,
        "method": {
            "name": method.name,
            "fields": {k: CALLABLE if callable(v) else v for k, v in fields.items()},
        },
        "classes": {"type": classifier.classes_.dtype.kind, "names": classifier.classes_.tolist()},
        "features": asdict(classifier.features_),
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": getattr(classifier, "feature_names_in_", np.empty(0)).tolist(),
        "seeds": list(fitted.seeds) if isinstance(fitted, Networks) else [],
        "history": {name: values.tolist() for name, values in classifier.history_.items()},
        "trust": trust,
        "notes": getattr(classifier, "notes_", {}),
    }
    write_whole(path, _content(about, tensors))


def _abstention_to_file(model: "CandidateClassifier") -> tuple[dict[str, Any], dict[str, Tensor]]:
    about: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    if model.reference_ is not None:
        tensors[REFERENCE] = model.reference_.rows.cpu()
    if model.recalibration_ is not None:
        about["recalibration"] = asdict(model.recalibration_)
    if model.trial_ is not None:
        trial = asdict(model.trial_)
        tensors[TRIAL] = torch.from_numpy(np.stack([trial.pop("certainty"), trial.pop("wrong")]))
        about["trial"] = trial
    return about, tensors


def _learned_tensors(fitted: Networks | Classical, shape: Shape) -> dict[str, Tensor]:
    """Tensors to write: float64 as float32 where that loses nothing, such as scaled rows."""
    if isinstance(fitted, Networks):
        return {name: value.cpu().contiguous() for name, value in fitted.net.state_dict().items()}
    layout = fitted.method.layout(shape, fitted.opinion.belief.shape[-1])
    tensors = {}
    for name, tensor in _fitting(layout, fitted.learned[0]).items():
        short = tensor.float() if tensor.dtype == torch.float64 else tensor
        lossless = torch.equal(short.to(tensor.dtype), tensor)
        tensors[name] = (short if lossless else tensor).cpu().contiguous()
    return tensors


def _content(about: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The bytes of a file; raises InputError for what `load` would refuse."""
    from safetensors.torch import save as to_bytes

    infinite = _infinite_tensor(tensors)
    if infinite is not None:
        raise InputError(
            f"The model is not saved: tensor {infinite!r} has numbers that are not finite. Fit it "
            "again, with a lower learning_rate."
        )
    description = json.dumps(about, default=lambda number: number.item())
    if len(description) > LONGEST:
        raise InputError(f"The model is not saved: its description is over {LONGEST:,} characters.")
    try:
        check(json.loads(description), DESCRIPTION)
    except ValueError as error:
        raise InputError(f"The model is not saved, as it could not be read: {error}.") from error
    content = to_bytes(tensors, {KEY: description, SUM: checksum(description, tensors)})
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # its order was random
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def load(
    path: str | Path,
    *,
    network: Callable[[Shape, int], nn.Module] | None = None,
    device: str = "auto",
) -> Any:
    """Read a classifier that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    network : callable, optional
        Builds the network, if the model was trained with a callable one.
    device : str
        Where to predict: "auto", "cpu" or "cuda".

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from robustpll import RobustPLLClassifier, load
    >>> model = RobustPLLClassifier(epochs=5).fit(np.eye(4), ["a", "b", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.pll")
    ...     again = load(f"{folder}/model.pll")
    >>> bool((again.predict_proba(np.eye(4)) == model.predict_proba(np.eye(4))).all())
    True
    """
    where, path = chosen_device(device), Path(path)
    with one_thread(), _blaming(path, where):  # without threads, so that the process may fork
        about, tensors = _read(path)
    fields = about["method"]["fields"]
    _refuse_other_network(path, fields.get("network"), network)
    with one_thread(), _blaming(path, where):
        if network is not None:
            fields["network"] = network
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        if about["method"]["name"] not in METHODS:
            raise ValueError(f"the method {shown(about['method']['name'])} is unknown")
        method: Any = METHODS[about["method"]["name"]](**fields)
        classifier = _classifier(about, method, device)
        _abstention_from_file(classifier, about.get("trust", {}), tensors, where)
        shape, k = classifier.features_.shape, len(classifier.classes_)
        if isinstance(method, DeepMethod):
            classifier.fitted_ = _networks(method, shape, k, tensors, tuple(about["seeds"]))
            classifier.fitted_.net.to(where)
        else:
            classifier.fitted_ = _classical(method, shape, k, tensors, where)
        if classifier.reference_ is not None:
            classifier.reference_.refuse_other_width(classifier.fitted_, shape)
    return classifier


def _refuse_other_network(path: Path, saved: Any, network: Any) -> None:
    if saved == CALLABLE and network is None:
        raise InputError(
            f"{path}: this model was trained with a network of your own, and code is never read "
            "from a file. Pass the same callable: load(path, network=...)."
        )
    if saved != CALLABLE and network is not None:
        has = "none" if saved is None else f"network={saved!r}"
        raise InputError(f"{path}: network was passed, but the model in the file has {has}.")


@contextmanager
def _blaming(path: Path, device: torch.device) -> Iterator[None]:
    """Turn errors into ModelFileError, except those of the device."""
    errors = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
    try:
        yield
    except ModelFileError:
        raise
    except (MemoryError, *errors) as error:
        reason = str(error)[:1000]  # it may quote a value of any length
        if device.type == "cuda" and ("CUDA" in reason or isinstance(error, MemoryError)):
            raise InputError(
                f"{path} is not loaded: {device} has no room for it, or does not answer "
                f'({reason}). Free its memory, or pass device="cpu".'
            ) from error
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise InputError(
                f"{path} is not loaded: there is not enough memory for it. Free some."
            ) from error
        raise ModelFileError(
            f"{path} is damaged, or was written by another version ({reason})."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Checked description and tensors of a file."""
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():  # a pipe would be waited for
            what = "is not a model file, but a folder, a pipe or a device."
            missing = f"There is no file {path}."
            raise ModelFileError(f"{f'{path} {what}' if path.exists() else missing} {REMEDY}")
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). {REMEDY}"
        ) from error
    if len(metadata.get(KEY, "")) > LONGEST:
        raise ModelFileError(f"{path} has a description of more than {LONGEST:,} characters.")
    try:
        about: dict[str, Any] = json.loads(metadata[KEY])
        number = about["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path} holds tensors, but no description of a robustpll model. {REMEDY}"
        ) from error
    if isinstance(number, bool) or number not in READABLE:
        raise ModelFileError(
            f"{path} has format {shown(number)}, this version reads up to {FORMAT}. It was written "
            f"by robustpll {shown(about.get('version'))}: install that version."
        )
    if SUM in metadata and metadata[SUM] != checksum(metadata[KEY], tensors):
        raise ModelFileError(
            f"{path} is damaged: its content is not what was written. Copy it anew, or save the "
            "model again."
        )
    check(about, DESCRIPTION)
    infinite = _infinite_tensor(tensors)
    if infinite is not None:
        raise ModelFileError(
            f"{path} is of no use: tensor {infinite!r} has numbers that are not finite. Fit the "
            "model again, with a lower learning_rate."
        )
    return about, tensors


def _classifier(about: dict[str, Any], method: Method, device: str) -> Any:
    """The classifier without what its method learned."""
    from robustpll.estimator import PLLClassifier, RobustPLLClassifier

    params = about["params"] | {"device": device}
    if about["class_weight"] is not None:
        params["class_weight"] = dict(about["class_weight"])
    classifier: Any
    if about["estimator"] == "PLLClassifier":
        classifier = PLLClassifier(**params | {"method": method})
    elif isinstance(method, RobustPll):
        missing = RobustPLLClassifier().get_params().keys() - params.keys()  # tuples, callables
        fields = missing & set(method.field_names())
        classifier = RobustPLLClassifier(**params | {n: getattr(method, n) for n in fields})
    else:
        raise ValueError(f"a {about['estimator']} does not use {method.name!r}")
    features = classifier.features_ = Features.from_json(about["features"])
    classifier.n_features_in_, names = about["n_features_in"], about["feature_names_in"]
    size = math.prod(features.shape)
    widths = {len(features.shift), len(features.scale), len(features.columns) or size}
    if names:
        classifier.feature_names_in_ = np.array(names, dtype=object)
        fits = (*features.names(names),) == features.columns and len(names) == about[
            "n_features_in"
        ]
    else:
        fits = bool(features.columns) or about["n_features_in"] == size
    if widths != {size} or not fits or not 1 <= len(features.shape) <= 3:
        raise ValueError("the columns that it was fitted with are not those it computes with")
    kind, words = about["classes"]["type"], about["classes"]["names"]
    if not all(type(word) is CLASS_NAMES[kind] for word in words):
        raise ValueError(f"a class in {shown(words)} is of another type than {kind!r}")
    if kind == "U":
        refuse_odd_text(words)  # before numpy makes all of them as long as the longest
    dtype: Any = {"U": str, "b": bool}.get(kind, f"{kind}8")
    classifier.classes_ = checked_classes(np.array(words, dtype=dtype))
    history = about["history"].items()
    classifier.history_ = {name: np.array(values, dtype=np.float64) for name, values in history}
    classifier.notes_ = dict(about.get("notes", {}))  # of the caller: how a table was read
    return classifier


def _abstention_from_file(
    model: "CandidateClassifier",
    about: dict[str, Any],
    tensors: dict[str, Tensor],
    device: torch.device,
) -> None:
    """Take what abstention needs out of the tensors."""
    reference, trial = tensors.pop(REFERENCE, None), tensors.pop(TRIAL, None)
    model.reference_ = model.recalibration_ = model.trial_ = None
    if reference is not None:
        if reference.dtype != torch.float32 or reference.ndim != 3 or 0 in reference.shape:
            raise ValueError(f"tensor {REFERENCE!r} is {reference.shape} of {reference.dtype}")
        if reference.shape[1] > MOST_ROWS:
            raise ValueError(f"it has {reference.shape[1]} reference rows, more than {MOST_ROWS}")
        model.reference_ = Reference.of_rows(reference.to(device))
    if "recalibration" in about:
        model.recalibration_ = Recalibration(**about["recalibration"])
    if "trial" in about:
        if trial is None or trial.dtype != torch.float64 or trial.ndim != 2 or 0 in trial.shape:
            raise ValueError(f"tensor {TRIAL!r} is missing, or of another shape or type")
        certainty, wrong = trial.numpy()
        if (certainty[1:] > certainty[:-1]).any() or abs(wrong - 0.5).max() > 0.5 + 1e-6:
            raise ValueError(f"the rows of {TRIAL!r} are not in order")
        model.trial_ = CalibrationSample(certainty, wrong, **about["trial"])


def _networks(
    method: DeepMethod, shape: Shape, k: int, tensors: dict[str, Tensor], seeds: tuple[int, ...]
) -> Networks:
    """The networks; laid out without memory first, so that a false description costs nothing."""
    parts = [name.split(".") for name in tensors]  # copies side by side, or stacked
    copies = {part[1] for part in parts if part[0] == "copies" and len(part) > 1}
    stacked = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=0)
    if {len(seeds), len(copies) or stacked} != {method.members}:
        raise ValueError("its description names sizes that its tensors do not have")
    net = method.build(shape, k, Blank.models_of(method.members, torch.float32))
    expected, present = (
        {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in state.items()}
        for state in (net.state_dict(), tensors)
    )
    if expected != present:
        name = sorted(set(expected.items()) ^ set(present.items()))[0][0]
        raise ValueError(
            f"tensor {name!r} should be {expected.get(name)}, but is {present.get(name)}"
        )
    net.load_state_dict(tensors, assign=True)
    net.eval().requires_grad_(False)
    nothing = torch.empty(1, 0, k)
    return Networks(method, net, seeds, nothing, Opinion.of_probability(nothing), History())


def _classical(
    method: Any, shape: Shape, k: int, tensors: dict[str, Tensor], device: torch.device
) -> Classical:
    learned = _fitting(method.layout(shape, k), tensors)
    nothing = Opinion.of_probability(torch.empty(1, 0, k, device=device))
    return Classical(method, ({n: value.to(device) for n, value in learned.items()},), nothing)


def _fitting(layout: Layout, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the types of the layout; raises for other names or shapes."""
    if layout.keys() != tensors.keys():
        raise ValueError(
            f"its tensors should be {', '.join(layout)}, but are {', '.join(tensors) or 'none'}"
        )
    sizes: dict[str, int] = {}  # of the words in shapes
    fitting = {}
    for name, (dtype, words) in layout.items():
        tensor = tensors[name]
        if (tensor.dtype, dtype) == (torch.float32, torch.float64):
            tensor = tensor.double()
        pairs = zip_longest(words, tensor.shape)
        shape = tuple(sizes.setdefault(w, size) if isinstance(w, str) else w for w, size in pairs)
        if (shape, dtype) != (tuple(tensor.shape), tensor.dtype) or 0 in shape:
            raise ValueError(
                f"tensor {name!r} should be {shape} {dtype}, but is {tuple(tensor.shape)} "
                f"{tensor.dtype}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"tensor {name!r} has numbers that are not finite")
        fitting[name] = tensor
    return fitting
