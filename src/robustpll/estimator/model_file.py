"""Model files: safetensors with a description in JSON and a checksum, never pickle."""

import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from sklearn.base import BaseEstimator, clone
from torch import Tensor

import robustpll
from robustpll._files import write_whole
from robustpll.engine.augment import Augmentation
from robustpll.engine.checkpoint import checksum
from robustpll.engine.device import chosen_device, threads
from robustpll.engine.history import History
from robustpll.engine.modules import Unpacking
from robustpll.engine.networks import Network, Shape
from robustpll.engine.predict import Networks
from robustpll.engine.random import Draws
from robustpll.errors import InputError, ModelFileError, is_number, some_of
from robustpll.estimator import PLLClassifier, RobustPLLClassifier, abstention
from robustpll.estimator.features import Features
from robustpll.labels.parsing import checked_classes, refuse_odd_text
from robustpll.methods import METHODS, DeepMethod, Method, RobustPll
from robustpll.methods.auto import Auto, OneStack, Stack
from robustpll.methods.classical import Classical, Layout, Tensors
from robustpll.methods.forest import Forest, is_forest
from robustpll.methods.wrapped import Wrapped, WrappedModels, forest_model, probability_of
from robustpll.opinion import Opinion

FORMAT = 2  # raised whenever an older reader would misread a file
READABLE = (1, FORMAT)  # format 1 has no recalibration
KEY = "robustpll"  # of the description in the file's metadata
SUM = "robustpll.sha256"  # of the checksum; files of version 0.1.0 have none
REFERENCE, TRIAL = "robustpll.reference", "robustpll.trial"  # names of tensors
COPY = re.compile(r"(?:^|\.)copies\.(\d+)\.")  # in a tensor's name
FOREST = "forest."  # prefix of the tensors of a wrapped forest
PLAIN = str | int | float | bool | np.number | None  # parameters that are stored
CALLABLE = "(callable)"  # stands for a network that only the user's code can build
ESTIMATOR = "(estimator)"  # stands for a scikit-learn estimator that is no name
LARGEST = 100.0  # power of a learner's evidence, and its offset
LONGEST = 50_000_000  # characters of a description; what is longer is cut, and so no JSON
CLASS_TYPES = {"U": str, "i": int, "u": int, "f": float, "b": bool}  # by numpy's letter
# of an archive of skops: its description; its other files are arrays
SCHEMA = "schema.json"
NATIVE = "sklearn.svm"  # skops trusts it, but libsvm reads arrays without looking at their lengths
ARRAY = re.compile(r"\d+\.npy")
REMEDY = "Pass a file that robustpll fit or a classifier's save() wrote."


def save(classifier: Any, path: Path) -> None:
    """Write a model file atomically; equal models give equal bytes."""
    fitted = classifier.fitted_
    if (
        not isinstance(fitted, Networks | Classical | Stack)
        or type(fitted.method) not in METHODS.values()
    ):
        raise InputError(
            f"{type(getattr(fitted, 'method', fitted)).__name__} is a method of your own, which a "
            f"reader of the file would not have. Only these can be saved: {', '.join(METHODS)}."
        )
    method, weight, trial = fitted.method, classifier.class_weight, classifier.trial_
    params = classifier.get_params(deep=False).items()
    trust: dict[str, Any] = {}
    stack = None
    tensors = {name: _stored(tensor) for name, tensor in _learned(fitted).items()}
    tensors |= classifier.features_.tensors()
    networks = abstention.networks_of(fitted)
    if isinstance(fitted, Stack):
        run, network = fitted.runs[0], _described(networks[0].method) if networks else None
        powers = {name: run.powers.get(name, 1.0) for name in run.parts}
        stack = {"powers": powers, "offset": run.offset, "network": network}
        stack["calibrated"] = bool(run.powers)
    if classifier.reference_ is not None:
        tensors[REFERENCE] = classifier.reference_.rows.cpu()
        trust["training_rows"] = classifier.reference_.trained
    if classifier.recalibration_ is not None:
        trust["recalibration"] = asdict(classifier.recalibration_)
    if trial is not None:
        tensors[TRIAL] = torch.from_numpy(np.stack([trial.certainty, trial.wrong]))
        trust["trial"] = {name: getattr(trial, name) for name in ("limit", "source", "confidence")}
    about = {
        "format": FORMAT,
        "version": robustpll.__version__,
        "estimator": type(classifier).__name__,
        "params": {
            name: value
            for name, value in params
            if isinstance(value, PLAIN) and name != "checkpoint"
        },
        # pairs, since keys may be numbers
        "class_weight": [*map(list, weight.items())] if isinstance(weight, Mapping) else None,
        "method": _described(method),
        "stack": stack,
        "classes": {"type": classifier.classes_.dtype.kind, "names": classifier.classes_.tolist()},
        "features": classifier.features_.described(),
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": getattr(classifier, "feature_names_in_", np.empty(0)).tolist(),
        "seeds": list(networks[0].seeds) if networks else [],
        "history": {name: values.tolist() for name, values in classifier.history_.items()},
        "trust": trust,
        "notes": getattr(classifier, "notes_", {}),
    }
    description = json.dumps(about, default=lambda number: number.item())
    try:  # what `load` would refuse is not written
        _classifier(json.loads(description[:LONGEST]), {**tensors}, method, "cpu")
        _refuse_lost_buffers(networks, classifier.features_.shape, len(classifier.classes_))
    except Exception as error:
        raise InputError(f"The model is not saved: {error}.") from error
    write_whole(path, _content(description, tensors))


def _refuse_lost_buffers(parts: Sequence[Networks], shape: Shape, k: int) -> None:
    """Raise an error if users' modules have buffers that training changed and no file keeps."""
    for part in parts:
        tensors = part.net.state_dict()
        lost = {name: of for name, of in part.net.named_buffers() if name not in tensors}
        if not lost or isinstance(part.method.network, str):
            continue
        nothing = torch.empty(1, 0, k, device=part.device)
        again = _networks(part.method, {**tensors}, nothing, shape, [*part.seeds])
        fresh = dict(again.net.named_buffers())
        if changed := [name for name in lost if not torch.equal(lost[name], fresh[name])]:
            fault = f"training changed the buffer {changed[0]!r} of the network, which is not"
            raise ValueError(f"{fault} persistent. Register it with persistent=True")


def _learned(fitted: Any) -> Tensors:
    """The tensors of one run by name; parts of a stack have the prefix "network." or "trees."."""
    # Forests are tensors, other wrapped estimators are bytes.
    if isinstance(fitted, Stack):
        tensors: Tensors = {}
        for name, part in fitted.runs[0].parts.items():
            learned = _learned(part) if isinstance(part, Networks) else part.estimators[0].tensors()
            tensors |= {f"{name}.{key}": tensor for key, tensor in learned.items()}
        return tensors
    if isinstance(fitted, Networks):
        return fitted.net.state_dict()
    method, learned = fitted.method, fitted.learned[0]
    if not isinstance(method, Wrapped):
        return dict(learned)
    estimator, tensors = learned["estimator"], {"columns": learned["columns"]}
    if not is_forest(estimator) and not isinstance(estimator, Forest):
        return tensors | {"estimator": estimator_as_tensor(estimator)}
    forest = Forest.of([estimator], torch.float64) if is_forest(estimator) else estimator
    if not isinstance(method.estimator, str):
        tensors["estimator"] = estimator_as_tensor(clone(method.estimator))  # to be fitted again
    return tensors | {FOREST + name: tensor for name, tensor in forest.tensors().items()}


def _described(method: Method) -> dict[str, Any]:
    """A method for JSON; marks stand for what only code or another part of the file has."""
    fields: dict[str, Any] = {name: getattr(method, name) for name in method.field_names()}
    for name, value in fields.items():
        if isinstance(value, Augmentation):
            fields[name] = asdict(value)
        elif callable(value) or hasattr(value, "get_params"):
            fields[name] = ESTIMATOR if hasattr(value, "get_params") else CALLABLE
    for name in ("augment", "parameter_groups"):
        if fields.get(name) == CALLABLE:  # predictions do not need it
            fields[name] = None
    return {"name": method.name, "fields": fields}


def _stored(tensor: Tensor) -> Tensor:
    """A tensor to write: float64 as float32 where that loses nothing."""
    short = tensor.float() if tensor.dtype == torch.float64 else tensor
    lossless = torch.equal(short.to(tensor.dtype), tensor)
    return (short if lossless else tensor).cpu().contiguous().clone()  # layers may share it


def _content(description: str, tensors: Tensors) -> bytes:
    """The bytes of a file; safetensors alone would write the metadata in random order."""
    content = to_bytes(tensors, {KEY: description, SUM: checksum(description, tensors)})
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[end:]


def load(
    path: str | Path, *, network: Network | None = None, device: str = "auto"
) -> PLLClassifier | RobustPLLClassifier:
    """Read a classifier that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    network : module, class or callable, optional
        The network, or what builds it, if the model was trained with one of your own.
    device : str
        Where to predict: "auto", "cpu" or "cuda".

    Examples
    --------
    >>> import tempfile
    >>> from robustpll import RobustPLLClassifier
    >>> model = RobustPLLClassifier(epochs=5).fit(np.eye(4), ["a", "b", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.pll")
    ...     again = load(f"{folder}/model.pll")
    >>> bool((again.predict_proba(np.eye(4)) == model.predict_proba(np.eye(4))).all())
    True
    """
    where, path, is_whole = chosen_device(device), Path(path), False
    if not path.is_file():  # a pipe would be waited for
        raise ModelFileError(f"There is no file {path}, or it is a folder or a pipe. {REMEDY}")
    try:
        with threads(1):  # so that the process may fork
            about, tensors = _read(path)
            fields = about["method"]["fields"]
            if (fields.get("network") == CALLABLE) == (network is not None):
                method = _method(about["method"], network)
                classifier: PLLClassifier | RobustPLLClassifier
                classifier = _classifier(about, tensors, method, device)
                is_whole = True
                _read_learned(classifier, method, about, tensors, where, network=network)
                return classifier
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except Exception as error:
        reason = str(error)[:1000]  # it may quote a value of any length
        is_full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if is_full or (where.type == "cuda" and "CUDA" in reason):
            raise InputError(
                f"{path} is not loaded: {where} has not enough memory, or does not answer "
                f'({reason}). Free its memory, or pass device="cpu".'
            ) from error
        fault, remedy = "is not a model file, is damaged, or was written by another version", REMEDY
        if network is not None and is_whole:
            fault = "does not fit the network that was passed"
            remedy = "Pass the network that it was trained with."
        raise ModelFileError(f"{path} {fault} ({reason}). {remedy}") from error
    raise InputError(
        f"{path}: this model has network={fields.get('network')!r}. Call load(path, network=...) "
        "with your network if the model was trained with one, as code is never read from a file; "
        "otherwise pass no network."
    )


def _method(about: dict[str, Any], network: Any = None) -> Any:
    """The method of a description; `_read_learned` sets an estimator that only has a mark."""
    if (name := str(about["name"])[:100]) not in METHODS:
        raise ModelFileError(
            f"it was saved with the method {name!r}, which this program does not know. If "
            f"it is your own, import its class first, and register it: METHODS[{name!r}] = ..."
        )
    fields: dict[str, Any] = dict(about["fields"])
    fields |= {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    if network is not None and fields.get("network") == CALLABLE:
        fields["network"] = network
    if fields.get("estimator") == ESTIMATOR:
        del fields["estimator"]
    if isinstance(fields.get("augment"), dict):
        fields["augment"] = Augmentation(**fields["augment"])
    return METHODS[about["name"]](**fields)


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Description and tensors of a file that is whole and of a known format."""
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    about: dict[str, Any] = json.loads(metadata[KEY][:LONGEST])
    if about["format"] not in READABLE:
        raise ValueError(f"it has format {about['format']}, this version reads up to {FORMAT}")
    if SUM in metadata and metadata[SUM] != checksum(metadata[KEY], tensors):
        raise ValueError("its checksum is wrong: copy or save it again")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise ValueError("a tensor has numbers that are not finite")
    return about, tensors


def _classifier(
    about: dict[str, Any], tensors: dict[str, Tensor], method: Method, device: str
) -> Any:
    """The classifier of a description, without what it learned; removes tensors of its features."""
    features = Features.from_json(about["features"], tensors)
    params = about["params"] | {"device": device, "text": tuple(features.texts)}
    params["cluster"] = None  # a file names no machines
    if about["class_weight"] is not None:
        params["class_weight"] = dict(about["class_weight"])
    classifier: Any
    if about["estimator"] == "PLLClassifier":
        classifier = PLLClassifier(**params | {"method": method})
    elif about["estimator"] == "RobustPLLClassifier" and isinstance(method, RobustPll | Auto):
        missing = RobustPLLClassifier().get_params().keys() - params.keys()  # tuples, callables
        fields = missing & set(method.field_names())
        classifier = RobustPLLClassifier(**params | {n: getattr(method, n) for n in fields})
    else:
        raise ValueError(f"{about['estimator']!r} does not use {method.name!r}")
    kind, classes = about["classes"]["type"], about["classes"]["names"]
    if not all(isinstance(name, CLASS_TYPES[kind]) for name in classes):
        raise ValueError(f"a class is not of the type {kind!r}")
    if kind == "U":
        refuse_odd_text(classes)  # before numpy makes all of them as long as the longest
    dtype: Any = {"U": str, "b": bool}.get(kind, f"{kind}8")
    classifier.classes_ = checked_classes(np.array(classes, dtype=dtype))
    classifier.features_ = features
    columns = list(about["feature_names_in"])
    if columns:
        classifier.feature_names_in_ = np.array(columns, dtype=object)
    classifier.n_features_in_ = about["n_features_in"]
    _check_columns(classifier.features_, columns, about["n_features_in"])
    history = about["history"].items()
    classifier.history_ = {name: np.array(values, dtype=np.float64) for name, values in history}
    classifier.notes_ = {**about.get("notes", {})}  # of the caller: how a table was read
    return classifier


def _check_columns(features: Features, names: list[str], width: Any) -> None:
    """Raise unless columns, shape, shift and scale agree, and can be computed with."""
    size, reduction = math.prod(features.shape), features.reduction
    sizes = {len(features.shift), len(features.scale), len(features.columns) or size}
    input_size = size if reduction is None else reduction.width
    numbers = [*features.shift, *features.scale, *features.fill.values()]
    rules = [
        min(features.shape, default=0) > 0 and len(features.shape) <= 3,
        features.unit in (0, 1, 255),
        sizes == {size},
        bool(np.isfinite(numbers).all()) and 0 not in features.scale,
        not features.curves or len(features.shape) == 1,
        all(0 <= number < size for number in features.curves),
        all(curve.is_sound for curve in features.curves.values()),
        isinstance(width, int),
        not names or (*features.names(names),) == features.columns,
        bool(features.columns and not names) or width == (len(names) or input_size),
        not names or features.texts.keys() <= {*names},
        all(part.words and part.is_sound for part in features.texts.values()),
        features.layout is None or (sum(features.layout.sizes),) == features.shape,
        reduction is None
        or (reduction.is_sound and (len(reduction.components),) == features.shape),
    ]
    if not all(rules):
        raise ValueError("the columns that it was fitted with are not those it computes with")


def _read_learned(
    model: Any,
    method: Any,
    about: dict[str, Any],
    tensors: Tensors,
    device: torch.device,
    *,
    network: Any,
) -> None:
    """Set what the method learned."""
    if network is not None and model.features_.layout is not None:
        network = Unpacking(network, model.features_.layout)
        method = replace(method, network=network)
    shape, k = model.features_.shape, len(model.classes_)
    width, nothing = math.prod(shape), torch.empty(1, 0, k, device=device)
    sizes = {"d": width, "d + 1": width + 1, "k": k}
    extra = {name: tensors.pop(name) for name in (REFERENCE, TRIAL) if name in tensors}
    if isinstance(method, DeepMethod):
        model.fitted_ = _networks(method, tensors, nothing, shape, about["seeds"])
    elif isinstance(method, Auto):
        run = _stack(about, tensors, nothing, shape, network)
        model.fitted_ = Stack(method, (run,), nothing, Opinion.of_probability(nothing), History())
    elif isinstance(method, Wrapped):
        is_object = about["method"]["fields"]["estimator"] == ESTIMATOR
        model.fitted_ = _wrapped(method, tensors, nothing, width, is_object=is_object)
        model.method = model.fitted_.method
    else:
        fitting = _fitting(method.layout(shape), tensors, **sizes)
        learned = {name: tensor.to(device) for name, tensor in fitting.items()}
        model.fitted_ = Classical(method, (learned,), Opinion.of_probability(nothing))
    _read_abstention(model, about.get("trust", {}), extra, model.fitted_.device)


def _networks(
    method: DeepMethod, tensors: Tensors, nothing: Tensor, shape: Shape, seeds: list[int]
) -> Networks:
    """Networks on the device of an empty tensor (1, 0, k), laid out without memory at first.

    Those of the user's code are built in full, as files do not have all that modules may hold.
    """
    copies = {part[0] for part in map(COPY.findall, tensors) if part}  # side by side, or stacked
    stacked = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=0)
    if {len(seeds), len(copies) or stacked} != {method.members}:
        raise ValueError("its description names sizes that its tensors do not have")
    like = nothing.to("meta") if isinstance(method.network, str) else nothing
    draws = Draws.of(tuple(seeds), like=like)
    net = method.build(shape, nothing.shape[-1], draws)
    layout = {name: (part.dtype, tuple(part.shape)) for name, part in net.state_dict().items()}
    net.load_state_dict(_fitting(layout, tensors), assign=True)
    net.eval().requires_grad_(False).to(nothing.device)
    nothing = nothing.cpu()
    opinion = Opinion.of_probability(nothing)
    return Networks(method, net, tuple(seeds), nothing, opinion, History())


def _stack(
    about: dict[str, Any], tensors: Tensors, nothing: Tensor, shape: Shape, network: Any
) -> OneStack:
    """The parts of a stack of one run, and the numbers that combine them."""
    powers, offset = dict(about["stack"]["powers"]), about["stack"]["offset"]
    numbers = [*powers.values(), offset]
    if not all(is_number(number) and abs(number) <= LARGEST for number in numbers):
        raise ValueError("the powers of its learners are not numbers that it can compute with")
    by_part: dict[str, Tensors] = {name: {} for name in powers}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        by_part[part][rest] = tensor
    parts: dict[str, Networks | WrappedModels] = {}
    for name, learned in by_part.items():
        if name == "network":
            method = _method(about["stack"]["network"], network)
            parts[name] = _networks(method, learned, nothing, shape, about["seeds"])
        elif name == "trees":
            fitting = _fitting(Forest.layout, learned, k=nothing.shape[-1])
            forest = Forest.of_tensors(fitting, math.prod(shape))
            parts[name] = forest_model(forest.to(nothing.device))
    if not parts or parts.keys() != powers.keys():
        raise ValueError("it has other learners than networks and trees")
    is_calibrated = about["stack"].get("calibrated", True)
    return OneStack(parts, powers if is_calibrated else {}, float(offset))


def _wrapped(
    method: Wrapped, tensors: Tensors, nothing: Tensor, width: int, *, is_object: bool
) -> WrappedModels:
    """A fitted estimator, or a forest; `is_object`: the method's estimator is no name."""
    nodes = {n.removeprefix(FOREST): t for n, t in tensors.items() if n.startswith(FOREST)}
    layout = {**method.learns}
    if nodes and not is_object:
        del layout["estimator"]
    others = {name: t for name, t in tensors.items() if not name.startswith(FOREST)}
    learned: dict[str, Any] = _fitting(layout, others, k=nothing.shape[-1])
    if "estimator" in learned:
        learned["estimator"] = estimator_of_tensor(learned["estimator"])
    if not nodes:
        check_answers(learned, width)
    if is_object:
        method = replace(method, estimator=clone(learned["estimator"]))
    if nodes:
        in_double = Forest.layout | {"value": (torch.float64, ("leaves", "k"))}
        fitting = _fitting(in_double, nodes, k=int(learned["columns"].sum()))
        learned["estimator"] = Forest.of_tensors(fitting, width)
    return WrappedModels(method, (learned,), Opinion.of_probability(nothing))


def _read_abstention(model: Any, about: Any, tensors: Tensors, device: torch.device) -> None:
    model.reference_ = model.recalibration_ = model.trial_ = None
    layout: Layout = {TRIAL: (torch.float64, (2, "rows"))} if "trial" in about else {}
    if REFERENCE in tensors:
        _, rows, width = tensors[REFERENCE].shape
        shape = model.features_.shape
        members, width = abstention.representation_shape(model.fitted_, shape, width)
        rows = min(rows, abstention.MOST_ROWS)
        layout[REFERENCE] = (torch.float32, (members, rows, width))
        trained = int(about.get("training_rows", 0))
        model.reference_ = abstention.Reference(tensors[REFERENCE].to(device), trained)
    tensors = _fitting(layout, tensors)
    if "recalibration" in about:
        model.recalibration_ = abstention.Recalibration(**about["recalibration"])
    if "trial" in about:
        certainty, wrong = tensors[TRIAL].numpy()
        if (certainty[1:] > certainty[:-1]).any() or abs(wrong - 0.5).max() > 0.5 + 1e-6:
            raise ValueError(f"the rows of {TRIAL!r} are not in order")
        model.trial_ = abstention.CalibrationSample(certainty, wrong, **about["trial"])


def _fitting(layout: Layout, tensors: Tensors, **sizes: int) -> Tensors:
    """The tensors in the types of the layout, if their shapes are; `sizes` are those known."""
    if layout.keys() != tensors.keys():
        other = some_of(sorted(layout.keys() ^ tensors.keys()))
        raise ValueError(f"these tensors are in the file or expected, but not both: {other}")
    fitting = {}
    for name, (dtype, words) in layout.items():
        tensor = tensors[name]
        if (tensor.dtype, dtype) == (torch.float32, torch.float64):
            tensor = tensor.double()
        pairs = zip_longest(words, tensor.shape)
        shape = tuple(sizes.setdefault(w, size) if isinstance(w, str) else w for w, size in pairs)
        if (shape, dtype) != (tuple(tensor.shape), tensor.dtype) or 0 in shape:
            raise ValueError(f"tensor {name!r} should be {shape} {dtype}")
        fitting[name] = tensor
    return fitting


# Wrapped estimators as bytes of skops, with the types that it trusts by default


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
