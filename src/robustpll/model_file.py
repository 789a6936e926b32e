"""A fitted classifier as one file: safetensors with JSON in its header, never pickle."""

import json
from collections.abc import Callable
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
from robustpll.methods import METHODS, DeepMethod
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.estimator import CandidateClassifier

FORMAT = 1  # raised whenever an older reader would misread a file
KEY = "robustpll"
CALLABLE = "(callable)"  # stands for a network that only the user's code can build


def save(classifier: "CandidateClassifier", path: Path) -> None:
    """Write under a temporary name, sync, rename: a file is there and whole, or not there."""
    from safetensors.torch import save as to_bytes

    import robustpll

    fitted = classifier.fitted_
    if not isinstance(fitted, Networks):
        msg = f"A model of type {type(fitted).__name__} cannot be saved yet: only networks can."
        raise InputError(msg)
    if METHODS.get(fitted.method.name) is not type(fitted.method):
        msg = (
            f"{type(fitted.method).__name__} is a method of your own, which a reader of the file "
            f"would not have: only the methods of the library can be saved ({', '.join(METHODS)})."
        )
        raise InputError(msg)
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
        "seeds": list(fitted.seeds),
        "history": {name: values.tolist() for name, values in classifier.history_.items()},
    }
    tensors = {name: value.cpu().contiguous() for name, value in fitted.net.state_dict().items()}
    write_whole(path, to_bytes(tensors, {KEY: json.dumps(about, default=_plain)}))


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
        classifier.fitted_ = _networks(classifier, method, tensors, tuple(about["seeds"]))
        classifier.fitted_.net.to(where)
    except WrongNetwork as error:
        msg = f"{path}: {error}"
        raise InputError(msg) from error
    except ModelFileError as error:
        msg = f"{path}: {error}"
        raise ModelFileError(msg) from error
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
    ) as error:
        msg = f"{path} is damaged, its description does not fit: {error}"
        raise ModelFileError(msg) from error
    return classifier


class WrongNetwork(Exception):
    """What was passed as `network` does not go with the file: for the user to mend."""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of a file that is whole and of this format."""
    from safetensors import SafetensorError, safe_open

    remedy = "Pass a file that a classifier's save() wrote."
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        msg = f"There is no file {path}. {remedy}"
        raise ModelFileError(msg) from error
    except (SafetensorError, OSError, ValueError) as error:
        msg = f"{path} is not a model file, or it is cut short or damaged ({error}). {remedy}"
        raise ModelFileError(msg) from error
    try:
        about = json.loads(metadata[KEY])
        found = about["format"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        msg = f"{path} holds tensors, but no description of a robustpll model. {remedy}"
        raise ModelFileError(msg) from error
    if found != FORMAT:
        msg = (
            f"{path} has format {found!r}, this version reads format {FORMAT}. It was written by "
            f"robustpll {about.get('version')!r}: install that version."
        )
        raise ModelFileError(msg)
    return about, tensors


def _classifier(about: dict[str, Any], method: DeepMethod, device: str) -> Any:
    """All of the classifier but its networks."""
    from robustpll.estimator import PLLClassifier, RobustPLLClassifier

    kinds = {kind.__name__: kind for kind in (PLLClassifier, RobustPLLClassifier)}
    params = about["params"] | {"device": device}
    if about["class_weight"] is not None:
        params["class_weight"] = dict(about["class_weight"])
    if about["estimator"] == "PLLClassifier":
        params["method"] = method
    else:
        params |= {name: getattr(method, name) for name in method.field_names()}
    classifier = kinds[about["estimator"]](**params)
    classifier.classes_ = _names(about["classes"])
    classifier.features_ = Features.from_json(about["features"])
    classifier.n_features_in_ = int(about["n_features_in"])
    if about["feature_names_in"]:
        classifier.feature_names_in_ = np.array(about["feature_names_in"], dtype=object)
    classifier.history_ = {name: np.array(values) for name, values in about["history"].items()}
    return classifier


def _pairs(class_weight: Any) -> list[list[Any]] | None:
    """A dict as JSON keeps it: its keys may be numbers."""
    return [list(pair) for pair in class_weight.items()] if hasattr(class_weight, "items") else None


def _plain(value: Any) -> Any:
    """Numbers of numpy's types as Python's own, for JSON."""
    return value.item()


def _fields(method: DeepMethod) -> dict[str, Any]:
    fields = {name: getattr(method, name) for name in method.field_names()}
    return {name: CALLABLE if callable(value) else value for name, value in fields.items()}


def _method(found: dict[str, Any], network: Callable[..., nn.Module] | None) -> DeepMethod:
    if found["name"] not in METHODS:
        msg = f"the method {found['name']!r} is unknown to this version of robustpll."
        raise ModelFileError(msg)
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found["fields"].items()
    }
    if fields["network"] == CALLABLE:
        if network is None:
            msg = (
                "this model was trained with a network of your own, and code is never read from a "
                "file. Pass the same callable: load(path, network=...)."
            )
            raise WrongNetwork(msg)
        fields["network"] = network
    elif network is not None:
        msg = f"network was passed, but the model in the file has network={fields['network']!r}."
        raise WrongNetwork(msg)
    return METHODS[found["name"]](**fields)  # type: ignore[return-value]


def _names(found: dict[str, Any]) -> NDArray[Any]:
    """Class names under the type they had: strings, integers, floats or truth values."""
    types: dict[str, type] = {"U": str, "i": np.int64, "u": np.uint64, "f": np.float64, "b": bool}
    names: NDArray[Any] = np.array(found["names"], dtype=types[found["type"]])
    return checked_classes(names)


def _networks(
    classifier: Any, method: DeepMethod, tensors: dict[str, Tensor], seeds: tuple[int, ...]
) -> Networks:
    """The networks, laid out without memory first, so that a lying description costs nothing."""
    features, k = classifier.features_, len(classifier.classes_)
    most = max([len(tensors), *(len(tensor) for tensor in tensors.values() if tensor.ndim)])
    sizes = (len(features.shift), len(features.scale))
    if (
        method.members > most
        or len(seeds) != method.members
        or any(size != torch.Size(features.shape).numel() for size in sizes)
    ):
        msg = "its description names sizes that its tensors do not have."
        raise ModelFileError(msg)
    net = method.build(features.shape, k, Blank.models_of(method.members, torch.float32))
    expected, found = (
        {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in state.items()}
        for state in (net.state_dict(), tensors)
    )
    if expected != found:
        odd = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        msg = f"tensor {odd!r} should be {expected.get(odd)}, but is {found.get(odd)}."
        raise ModelFileError(msg)
    net.load_state_dict(tensors, assign=True)
    net.eval().requires_grad_(False)
    nothing = torch.empty(1, 0, k)
    opinion = Opinion.of_probability(nothing)
    return Networks(method, net, seeds, nothing, opinion, History())
