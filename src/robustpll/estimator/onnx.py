"""A fitted classifier as an ONNX file: scaling, networks and opinions in one graph."""

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from robustpll._files import write_whole
from robustpll.engine.layers import Linear, Stack, folded, some_models
from robustpll.engine.predict import Networks
from robustpll.errors import InputError
from robustpll.estimator.features import FARTHEST, Features
from robustpll.estimator.recalibration import Recalibration
from robustpll.methods import DeepMethod
from robustpll.opinion import Opinion, named_as

if TYPE_CHECKING:
    from robustpll.estimator.classifier import CandidateClassifier

FORMAT = 1  # raised whenever a reader of an older file would misread a newer one
KEY = "robustpll"  # of the metadata, which is JSON
INPUT = "X"
OUTPUTS = ("predicted", "probability", "belief", "uncertainty", "entropy")
NO_ANSWER = -1  # predicted for a row that `predict` refuses
CLOSE = 1e-4  # how far the file's answers may be from torch's; rounding stays far below


def export_onnx(model: "CandidateClassifier", path: str | Path) -> None:
    """Write a classifier that was fitted by networks as an ONNX file, for other programs.

    The graph takes unscaled rows ``X`` (n, *shape) in float64 and gives ``predicted`` (n,), an
    index into the classes, ``probability`` and ``belief`` (n, k), ``uncertainty`` and ``entropy``
    (n,), recalibrated if the classifier is. For a row with numbers that are not finite, or too far
    from the training rows to compute with, all of them are NaN, and ``predicted`` is -1. Names of
    classes and of the numbers of a row are in the metadata under the key ``robustpll``, as JSON.

    Examples
    --------
    >>> import tempfile, onnxruntime
    >>> from robustpll import RobustPLLClassifier
    >>> model = RobustPLLClassifier(epochs=5).fit(np.eye(4), ["a", "b", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.export_onnx(f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    >>> (probability,) = session.run(["probability"], {"X": np.eye(4)})
    >>> bool(np.allclose(probability, model.predict_proba(np.eye(4)), atol=1e-5))
    True
    """
    check_is_fitted(model, "fitted_")
    onnx, runtime = _packages()
    fitted = _on_host(model.fitted_)
    with torch.no_grad():
        proto = _graph(Served(fitted, model.features_, model.recalibration_).eval())
    onnx.helper.set_model_props(proto, {KEY: json.dumps(_about(model, fitted.method))})
    content: bytes = proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    _refuse_other_answers(session, model, fitted)
    write_whole(Path(path), content)


class Served(nn.Module):
    """What a classifier does with raw rows (n, *shape), from scaling to the opinion."""

    shift: Tensor
    scale: Tensor

    def __init__(
        self, fitted: Networks, features: Features, recalibration: Recalibration | None
    ) -> None:
        super().__init__()
        members = fitted.method.members
        self.members = nn.ModuleList([_alone(fitted.net, at) for at in range(members)])
        for name in ("shift", "scale"):
            numbers = torch.tensor(getattr(features, name), dtype=torch.float64)
            self.register_buffer(name, numbers.view(features.shape))
        self.method = fitted.method.spread(members, like=self.shift)
        self.recalibration = recalibration

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = ((x - self.shift) / self.scale).float()
        logits = torch.stack([member(x) for member in self.members]).double()  # (members, n, k)
        opinion = self.method.opinion(logits).mean(0)
        opinion = named_as(self._recalibrated(opinion), opinion)
        predicted = opinion.predicted()
        fine = (x.flatten(1).abs() <= FARTHEST).all(1)  # as `Features.unusable_rows`
        given = (getattr(opinion, name) for name in OUTPUTS[1:])
        return torch.where(fine, predicted, NO_ANSWER), *(
            torch.where(fine.view(-1, *[1] * (each.ndim - 1)), each, torch.nan) for each in given
        )

    def _recalibrated(self, opinion: Opinion) -> Opinion:
        if self.recalibration is None:
            return opinion
        if self.recalibration.of == "evidence":
            return self.recalibration.opinion(opinion)  # no function of numpy is called there
        belief = (self.recalibration.factor * opinion.belief.log()).softmax(-1)
        return replace(opinion, belief=belief)


def _alone(net: nn.Module, at: int) -> nn.Module:
    """One of M models, (b, *shape) -> (b, k)."""
    if isinstance(net, Stack):
        return net.copies[at]
    layers = list(folded(net).children()) if isinstance(net, nn.Sequential) else [net]
    if all(isinstance(layer, Linear | nn.ReLU | nn.Flatten) for layer in layers):
        plain = (Affine(layer, at) if isinstance(layer, Linear) else layer for layer in layers)
        return nn.Sequential(
            nn.Flatten(), *(layer for layer in plain if not isinstance(layer, nn.Flatten))
        )
    return Alone(some_models(net, slice(at, at + 1)))


class Affine(nn.Module):
    """One model's part of a `Linear`; onnxruntime is faster at it than at M of them together."""

    weight: Tensor
    bias: Tensor

    def __init__(self, several: Linear, at: int) -> None:
        super().__init__()
        self.register_buffer("weight", several.weight.detach()[at].clone())
        self.register_buffer("bias", several.bias.detach()[at, 0].clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Alone(nn.Module):
    """A network of one model, without the model axis."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x[None])[0]
        return logits


def _graph(served: Served) -> Any:
    """The ONNX model of any number of rows, without the paths of source files."""
    example = torch.zeros(3, *served.shift.shape, dtype=torch.float64)
    try:
        with _quiet():
            program = torch.onnx.export(
                served,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=list(OUTPUTS),
                dynamic_shapes=({0: "n"},),
            )
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise InputError(
            f"torch cannot write this network as ONNX for any number of rows ({reason}). Its "
            "forward() must not branch on values, nor on how many rows there are."
        ) from error
    assert program is not None
    proto = program.model_proto
    proto.producer_name = KEY
    proto.graph.ClearField("metadata_props")
    for node in proto.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    return proto


@contextmanager
def _quiet() -> Iterator[None]:
    """torch tells of packages that nobody asked for, and shows its own insides."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _about(model: "CandidateClassifier", method: DeepMethod) -> dict[str, Any]:
    """What someone needs to know to feed the graph and to read its answers."""
    import robustpll

    features, recalibration = model.features_, model.recalibration_
    return {
        "format": FORMAT,
        "version": robustpll.__version__,
        "method": method.name,
        "members": method.members,
        "classes": model.classes_.tolist(),
        "shape": features.shape,
        "columns": features.columns,
        "categories": features.categories,
        "fill": features.fill,
        "recalibration": None if recalibration is None else asdict(recalibration),
    }


def _packages() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # by which torch writes graphs
    except ImportError as error:
        raise InputError(
            f"For an ONNX file, {error.name} is needed. Run pip install 'robustpll[onnx]', or use "
            "save(path), which needs no further package."
        ) from error
    return onnx, onnxruntime


def _on_host(fitted: Any) -> Networks:
    """A copy of the networks on the CPU; refuses what is not predicted by a pass through them."""
    if not isinstance(fitted, Networks):
        raise InputError(
            f"{fitted.method.title} is no network, and only networks are exported to ONNX. Use "
            "save(path), or another method."
        )
    if type(fitted.method).outputs is not DeepMethod.outputs:
        raise InputError(
            f"{fitted.method.title} predicts by random passes through its network, which ONNX has "
            "no seeds for. Use save(path), or an ensemble such as ProdenEns."
        )
    return replace(fitted, net=copy.deepcopy(fitted.net).cpu())


def _refuse_other_answers(session: Any, model: "CandidateClassifier", fitted: Networks) -> None:
    """Many rows and a single one, drawn from where the training rows lay."""
    features = model.features_
    drawn = np.random.default_rng(0).random((20, len(features.scale)))
    rows = (drawn * features.scale + features.shift).reshape(-1, *features.shape)
    for some in (rows, rows[:1]):
        opinion = model._recalibrated(fitted.predict(features.rows(some))[0].numpy())
        answers = session.run(OUTPUTS[1:], {INPUT: some})
        for name, answer in zip(OUTPUTS[1:], answers, strict=True):
            if not np.allclose(answer, getattr(opinion, name), rtol=0, atol=CLOSE):
                raise InputError(
                    "The ONNX graph of this network does not answer as torch does, so it is not "
                    "written. Its forward() must not draw random numbers, nor depend on how many "
                    "rows there are."
                )
