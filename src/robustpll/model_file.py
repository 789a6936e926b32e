"""A fitted classifier as one file: safetensors with JSON in its header, never pickle."""

import json
import math
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustpll.engine.device import chosen_device
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Networks
from robustpll.engine.random import Blank
from robustpll.errors import InputError, ModelFileError
from robustpll.features import Features
from robustpll.files import write_whole
from robustpll.label_forms import checked_classes
from robustpll.methods import METHODS, DeepMethod, Method, RobustPll
from robustpll.methods.classical import Classical, ClassicalMethod, Layout
from robustpll.opinion import Opinion
from robustpll.trust import trust_from_file, trust_to_file

if TYPE_CHECKING:
    from robustpll.estimator import CandidateClassifier

FORMAT = 2  # raised whenever an older reader would misread a file
READABLE = (1, FORMAT)  # 1 knows of no recalibration
KEY = "robustpll"
CALLABLE = "(callable)"  # stands for a network that only the user's code can build


def save(classifier: "CandidateClassifier", path: Path) -> None:
    """Write under a temporary name, sync, rename: a file is there and whole, or not there."""
    from safetensors.torch import save as to_bytes

    import robustpll

    fitted = classifier.fitted_
    if not isinstance(fitted, Networks | Classical) or type(fitted.method) not in METHODS.values():
        owner = type(getattr(fitted, "method", fitted)).__name__
        raise InputError(
            f"{owner} is a method of your own, which a reader of the file would not have: only the "
            f"methods of the library can be saved ({', '.join(METHODS)})."
        )
    trust, kept = trust_to_file(classifier)
    tensors = _tensors(fitted, classifier.features_.shape) | kept
    about = {
        "format": FORMAT,
        "version": robustpll.__version__,
        "estimator": type(classifier).__name__,
        "params": {
            name: value
            for name, value in classifier.get_params(deep=False).items()
            if isinstance(value, str | int | float | bool | np.number | None)
        },
        "class_weight": _pairs(classifier.class_weight),
        "method": {"name": fitted.method.name, "fields": _fields(fitted.method)},
        "classes": {"type": classifier.classes_.dtype.kind, "names": classifier.classes_.tolist()},
        "features": classifier.features_.to_json(),
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": getattr(classifier, "feature_names_in_", np.empty(0)).tolist(),
        "seeds": list(fitted.seeds) if isinstance(fitted, Networks) else [],
        "history": {name: values.tolist() for name, values in classifier.history_.items()},
        "trust": trust,
        "notes": getattr(classifier, "notes_", {}),
    }
    write_whole(path, to_bytes(tensors, {KEY: json.dumps(about, default=_plain)}))


def _tensors(fitted: Networks | Classical, shape: Shape) -> dict[str, Tensor]:
    """What is learned, as it is written: float64 as float32 where that loses nothing.

    Scaled rows come in float32, so that the file of a method that keeps them is half as long.
    """
    if isinstance(fitted, Networks):
        return {name: value.cpu().contiguous() for name, value in fitted.net.state_dict().items()}
    learned = fitted.learned[0]
    layout = fitted.method.layout(shape, fitted.opinion.belief.shape[-1])
    held = {name: value.cpu().contiguous() for name, value in _fitting(layout, learned).items()}
    short = {name: value.float() for name, value in held.items() if value.dtype == torch.float64}
    return held | {
        name: value for name, value in short.items() if torch.equal(value.double(), held[name])
    }


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
        Builds the network, where the model was trained with a callable one.
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
    where = chosen_device(device)
    about, tensors = _read(Path(path))
    try:
        method = _method(about["method"], network)
        classifier = _classifier(about, method, device)
        _refuse_other_sizes(classifier.features_)
        trust_from_file(classifier, about.get("trust", {}), tensors, where)
        if isinstance(method, DeepMethod):
            classifier.fitted_ = _networks(classifier, method, tensors, tuple(about["seeds"]))
            classifier.fitted_.net.to(where)
        else:
            classifier.fitted_ = _classical(classifier, method, tensors, where)
    except WrongNetwork as error:
        raise InputError(f"{path}: {error}") from error
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise ModelFileError(f"{path} is damaged, its description does not fit: {error}") from error
    return classifier


class WrongNetwork(Exception):
    """What was passed as `network` does not go with the file: for the user to mend."""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of a file that is whole and of this format."""
    from safetensors import SafetensorError, safe_open

    remedy = "Pass a file that robustpll fit or a classifier's save() wrote."
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ModelFileError(f"There is no file {path}. {remedy}") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a model file, or it is cut short or damaged ({error}). {remedy}"
        ) from error
    try:
        about = json.loads(metadata[KEY])
        found = about["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path} holds tensors, but no description of a robustpll model. {remedy}"
        ) from error
    if found not in READABLE:
        raise ModelFileError(
            f"{path} has format {found!r}, this version reads up to {FORMAT}. It was written by "
            f"robustpll {about.get('version')!r}: install that version."
        )
    return about, tensors


def _classifier(about: dict[str, Any], method: Method, device: str) -> Any:
    """All of the classifier but what its method learned."""
    from robustpll.estimator import PLLClassifier
    from robustpll.robust_estimator import RobustPLLClassifier

    kinds = {kind.__name__: kind for kind in (PLLClassifier, RobustPLLClassifier)}
    params = about["params"] | {"device": device}
    if about["class_weight"] is not None:
        params["class_weight"] = dict(about["class_weight"])
    if about["estimator"] == "PLLClassifier":
        params["method"] = method
    elif not isinstance(method, RobustPll):
        raise ModelFileError(f"A {about['estimator']} does not use {method.name!r}.")
    else:
        named = set(RobustPLLClassifier().get_params()) - set(params)  # tuples, a callable network
        params |= {name: getattr(method, name) for name in named & set(method.field_names())}
    classifier = kinds[about["estimator"]](**params)
    classifier.classes_ = _names(about["classes"])
    classifier.features_ = Features.from_json(about["features"])
    classifier.n_features_in_ = int(about["n_features_in"])
    if about["feature_names_in"]:
        classifier.feature_names_in_ = np.array(about["feature_names_in"], dtype=object)
    classifier.history_ = {name: np.array(values) for name, values in about["history"].items()}
    classifier.notes_ = dict(about.get("notes", {}))  # of whoever saved it: how a table was read
    return classifier


def _pairs(class_weight: Any) -> list[list[Any]] | None:
    """A dict as JSON keeps it: its keys may be numbers."""
    return [list(pair) for pair in class_weight.items()] if hasattr(class_weight, "items") else None


def _plain(value: Any) -> Any:
    """Numbers of numpy's types as Python's own, for JSON."""
    return value.item()


def _fields(method: Method) -> dict[str, Any]:
    fields = {name: getattr(method, name) for name in method.field_names()}
    return {name: CALLABLE if callable(value) else value for name, value in fields.items()}


def _method(found: dict[str, Any], network: Callable[..., nn.Module] | None) -> Any:
    if found["name"] not in METHODS:
        raise ModelFileError(
            f"the method {found['name']!r} is unknown to this version of robustpll."
        )
    kind = METHODS[found["name"]]
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found["fields"].items()
    }
    own = fields["network"] if issubclass(kind, DeepMethod) else None
    if own == CALLABLE:
        if network is None:
            raise WrongNetwork(
                "this model was trained with a network of your own, and code is never read from a "
                "file. Pass the same callable: load(path, network=...)."
            )
        fields["network"] = network
    elif network is not None:
        has = "none" if own is None else f"network={own!r}"
        raise WrongNetwork(f"network was passed, but the model in the file has {has}.")
    return kind(**fields)


def _names(found: dict[str, Any]) -> NDArray[Any]:
    """Class names under the type they had: strings, integers, floats or truth values."""
    types: dict[str, type] = {"U": str, "i": np.int64, "u": np.uint64, "f": np.float64, "b": bool}
    names: NDArray[Any] = np.array(found["names"], dtype=types[found["type"]])
    return checked_classes(names)


def _refuse_other_sizes(features: Features) -> None:
    """Shift and scale have a number for each of a row's, and a row has some."""
    size = math.prod(features.shape)
    if {len(features.shift), len(features.scale)} != {size} or min(features.shape, default=0) < 1:
        raise ModelFileError(
            f"its features have the shape {features.shape}, but another number of scales."
        )


def _networks(
    classifier: Any, method: DeepMethod, tensors: dict[str, Tensor], seeds: tuple[int, ...]
) -> Networks:
    """The networks, laid out without memory first, so that a lying description costs nothing."""
    features, k = classifier.features_, len(classifier.classes_)
    most = max([len(tensors), *(len(tensor) for tensor in tensors.values() if tensor.ndim)])
    if method.members > most or len(seeds) != method.members:
        raise ModelFileError("its description names sizes that its tensors do not have.")
    net = method.build(features.shape, k, Blank.models_of(method.members, torch.float32))
    expected, found = (
        {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in state.items()}
        for state in (net.state_dict(), tensors)
    )
    if expected != found:
        odd = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise ModelFileError(
            f"tensor {odd!r} should be {expected.get(odd)}, but is {found.get(odd)}."
        )
    net.load_state_dict(tensors, assign=True)
    net.eval().requires_grad_(False)
    nothing = torch.empty(1, 0, k)
    opinion = Opinion.of_probability(nothing)
    return Networks(method, net, seeds, nothing, opinion, History())


def _classical(
    classifier: Any, method: ClassicalMethod, tensors: dict[str, Tensor], device: torch.device
) -> Classical:
    """What a classical method learned, held against the layout that it must have."""
    k = len(classifier.classes_)
    learned = _fitting(method.layout(classifier.features_.shape, k), tensors)
    nothing = Opinion.of_probability(torch.empty(1, 0, k, device=device))
    here = {name: value.to(device) for name, value in learned.items()}
    return Classical(method, (here,), nothing)


def _fitting(layout: Layout, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the types of the layout; their names and shapes must be its own."""
    if layout.keys() != tensors.keys():
        raise ModelFileError(
            f"its tensors should be {', '.join(layout)}, but are {', '.join(tensors) or 'none'}."
        )
    sizes: dict[str, int] = {}  # of the words in shapes
    fitting = {}
    for name, (dtype, words) in layout.items():
        tensor = tensors[name]
        if (tensor.dtype, dtype) == (torch.float32, torch.float64):
            tensor = tensor.double()
        pairs = zip_longest(words, tensor.shape)
        shape = tuple(sizes.setdefault(w, at) if isinstance(w, str) else w for w, at in pairs)
        found = tuple(tensor.shape)
        if (shape, dtype) != (found, tensor.dtype) or 0 in shape:
            raise ModelFileError(
                f"tensor {name!r} should be {shape} {dtype}, but is {found} {tensor.dtype}."
            )
        if not tensor.isfinite().all():
            raise ModelFileError(f"tensor {name!r} has numbers that are not finite.")
        fitting[name] = tensor
    return fitting
