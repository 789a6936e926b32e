"""A fitted classifier as one file: safetensors with JSON in its header, never pickle."""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustpll._files import write_whole
from robustpll.engine.device import chosen_device, threads
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Networks
from robustpll.engine.random import Blank
from robustpll.errors import InputError, ModelFileError
from robustpll.estimator.abstention import trust_from_file, trust_to_file
from robustpll.estimator.features import Features
from robustpll.estimator.model_container import FORMAT, content_of, read
from robustpll.estimator.model_schema import CLASS_NAMES, Each
from robustpll.labels.parsing import checked_classes, refuse_odd_text
from robustpll.methods import METHODS, DeepMethod, Method, RobustPll
from robustpll.methods.classical import Classical, ClassicalMethod, Layout
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.estimator.classifier import CandidateClassifier

MOST_WORDS = 1000  # characters of a reason why a file is refused
CALLABLE = "(callable)"  # stands for a network that only the user's code can build


def save(classifier: "CandidateClassifier", path: Path) -> None:
    """Write under a temporary name, sync, rename: a file is there and whole, or not there."""
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
    write_whole(path, content_of(about, tensors))


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
    where, path = chosen_device(device), Path(path)
    with threads(1), _blaming(path, where):  # without threads, so that the process may fork
        about, tensors = read(path)
        method = _method(about["method"], network)
        classifier = _classifier(about, method, device)
        _refuse_other_sizes(classifier)
        trust_from_file(classifier, about.get("trust", {}), tensors, where)
        if isinstance(method, DeepMethod):
            classifier.fitted_ = _networks(classifier, method, tensors, tuple(about["seeds"]))
            classifier.fitted_.net.to(where)
        else:
            classifier.fitted_ = _classical(classifier, method, tensors, where)
        if classifier.reference_ is not None:
            classifier.reference_.refuse_other_width(classifier.fitted_, classifier.features_.shape)
    return classifier


@contextmanager
def _blaming(path: Path, device: torch.device) -> Iterator[None]:
    """What goes wrong within is the file's fault, but for what is the caller's or the device's."""
    try:
        yield
    except WrongNetwork as error:
        raise InputError(f"{path}: {error}") from error
    except ModelFileError as error:
        named = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise ModelFileError(named) from error
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise InputError(_no_room(path, device)) from error
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
    ) as error:
        if device.type == "cuda" and "CUDA" in str(error):
            raise InputError(f"{_no_room(path, device)} It says: {error}") from error
        why = str(error)[:MOST_WORDS]  # it may quote a value of any length
        raise ModelFileError(f"{path} is damaged: its description does not fit ({why}).") from error


def _no_room(path: Path, device: torch.device) -> str:
    if device.type == "cuda":
        return (
            f"{path} is not loaded: {device} has no room for it, or does not answer. Free its "
            'memory, or pass device="cpu".'
        )
    return f"{path} is not loaded: there is not enough memory for it. Free some."


class WrongNetwork(Exception):
    """What was passed as `network` does not go with the file: for the user to mend."""


def _classifier(about: dict[str, Any], method: Method, device: str) -> Any:
    """All of the classifier but what its method learned."""
    from robustpll.estimator.classifier import PLLClassifier
    from robustpll.estimator.robust import RobustPLLClassifier

    kinds = {kind.__name__: kind for kind in (PLLClassifier, RobustPLLClassifier)}
    kind: Any = kinds[about["estimator"]]
    params = about["params"] | {"device": device}
    _refuse_other_names("params", params, kind().get_params(deep=False))
    if about["class_weight"] is not None:
        params["class_weight"] = dict(about["class_weight"])
    if about["estimator"] == "PLLClassifier":
        params["method"] = method
    elif not isinstance(method, RobustPll):
        raise ModelFileError(f"A {about['estimator']} does not use {method.name!r}.")
    else:
        named = set(RobustPLLClassifier().get_params()) - set(params)  # tuples, a callable network
        params |= {name: getattr(method, name) for name in named & set(method.field_names())}
    classifier = kind(**params)
    classifier.classes_ = _names(about["classes"])
    classifier.features_ = Features.from_json(about["features"])
    classifier.n_features_in_ = about["n_features_in"]
    if about["feature_names_in"]:
        classifier.feature_names_in_ = np.array(about["feature_names_in"], dtype=object)
    history = about["history"].items()
    classifier.history_ = {name: np.array(values, dtype=np.float64) for name, values in history}
    classifier.notes_ = dict(about.get("notes", {}))  # of whoever saved it: how a table was read
    return classifier


def _pairs(class_weight: Any) -> list[list[Any]] | None:
    """A dict as JSON keeps it: its keys may be numbers."""
    return [list(pair) for pair in class_weight.items()] if hasattr(class_weight, "items") else None


def _fields(method: Method) -> dict[str, Any]:
    fields = {name: getattr(method, name) for name in method.field_names()}
    return {name: CALLABLE if callable(value) else value for name, value in fields.items()}


def _method(found: dict[str, Any], network: Callable[..., nn.Module] | None) -> Any:
    if found["name"] not in METHODS:
        raise ModelFileError(
            f"the method {shown(found['name'])} is unknown to this version of robustpll."
        )
    kind = METHODS[found["name"]]
    _refuse_other_names("fields", found["fields"], kind.field_names())
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found["fields"].items()
    }
    own = fields.get("network") if issubclass(kind, DeepMethod) else None
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


def _refuse_other_names(what: str, found: dict[str, Any], known: Collection[str]) -> None:
    unknown = sorted(found.keys() - set(known))
    if unknown:
        raise ModelFileError(f"its {what} have {shown(unknown[0])}, unknown to this version.")


def _names(found: dict[str, Any]) -> NDArray[Any]:
    """Class names under the type they had: strings, integers, floats or truth values."""
    types: dict[str, type] = {"U": str, "i": np.int64, "u": np.uint64, "f": np.float64, "b": bool}
    fault = Each(CLASS_NAMES[found["type"]]).fault(found["names"])
    if fault is not None:
        raise ModelFileError(f"the name of a class{fault}.")
    if found["type"] == "U":
        refuse_odd_text(found["names"])  # before numpy makes all of them as long as the longest
    names: NDArray[Any] = np.array(found["names"], dtype=types[found["type"]])
    return checked_classes(names)


def _refuse_other_sizes(classifier: Any) -> None:
    """Columns become the numbers of a row; shift and scale have one for each of them."""
    features, names = classifier.features_, getattr(classifier, "feature_names_in_", None)
    size = math.prod(features.shape)
    if {len(features.shift), len(features.scale), len(features.columns) or size} != {size}:
        raise ModelFileError(
            f"its features have the shape {features.shape}, but another number of columns or "
            "scales."
        )
    if names is not None:
        fits = [*features.names(names)] == [*features.columns]
        fits = fits and len(names) == classifier.n_features_in_
    else:
        fits = bool(features.columns) or classifier.n_features_in_ == size
    if not fits:
        raise ModelFileError("the columns that it was fitted with are not those it computes with.")


def _networks(
    classifier: Any, method: DeepMethod, tensors: dict[str, Tensor], seeds: tuple[int, ...]
) -> Networks:
    """The networks, laid out without memory first, so that a lying description costs nothing."""
    features, k = classifier.features_, len(classifier.classes_)
    if {len(seeds), _members(tensors)} != {method.members}:
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


def _members(tensors: dict[str, Tensor]) -> int:
    """Of how many networks these are: copies side by side, or stacked along the first axis."""
    parts = [name.split(".") for name in tensors]
    copies = {part[1] for part in parts if part[0] == "copies" and len(part) > 1}
    return len(copies) or max(
        (len(tensor) for tensor in tensors.values() if tensor.ndim), default=0
    )


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
