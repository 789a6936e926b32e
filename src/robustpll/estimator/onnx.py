"""ONNX export: scaling, networks and opinions in one graph."""

import copy
import io
import json
import logging
import warnings
from contextlib import redirect_stderr
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import robustpll
from robustpll._files import write_whole
from robustpll.engine.layers import Stack, folded, joined
from robustpll.engine.predict import Networks
from robustpll.errors import InputError
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.estimator.features import FARTHEST
from robustpll.methods import DeepMethod

FORMAT = 1  # raised whenever a reader of an older file would misread a newer one
KEY = "robustpll"  # of the metadata, which is JSON
INPUT = "X"
OUTPUTS = ("predicted", "probability", "belief", "uncertainty", "entropy")
NO_GRAPH = (
    "torch cannot write this network as an ONNX graph that answers the same. Its forward() must "
    "not branch on values, draw random numbers, nor depend on how many rows there are."
)


def export_onnx(model: CandidateClassifier, path: str | Path) -> None:
    """Write a classifier with networks as an ONNX file, for other programs.

    The graph takes unscaled rows ``X`` (n, *shape) in float64 and gives ``predicted`` (n,), an
    index into the classes, ``probability`` and ``belief`` (n, k), ``uncertainty`` and ``entropy``
    (n,), recalibrated if the classifier is. Rows that `predict` refuses get NaN, and -1 as
    ``predicted``. The metadata ``robustpll`` is JSON with the names of classes and columns.

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
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # by which torch writes graphs
    except ImportError as error:
        raise InputError(
            f"For an ONNX file, {error.name} is needed. Run pip install 'robustpll[onnx]', or use "
            "save(path), which needs no further package."
        ) from error
    fitted: Any = model.fitted_
    if not isinstance(fitted, Networks) or type(fitted.method).outputs is not DeepMethod.outputs:
        raise InputError(
            f"{fitted.method.title} is no network, or predicts by random passes through one: it "
            "has no ONNX graph. Use save(path) instead."
        )
    model = copy.copy(model)
    model.fitted_ = replace(fitted, net=copy.deepcopy(fitted.net).cpu())
    with torch.no_grad():
        proto = _graph(Served(model).eval())
    features = ("shape", "columns", "categories", "fill")
    about = {
        "format": FORMAT,
        "version": robustpll.__version__,
        "method": fitted.method.name,
        "members": fitted.method.members,
        "classes": model.classes_.tolist(),
        **{name: getattr(model.features_, name) for name in features},
        "recalibration": model.recalibration_ and asdict(model.recalibration_),
    }
    onnx.helper.set_model_props(proto, {KEY: json.dumps(about)})
    content: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    _refuse_other_answers(session, model)
    write_whole(Path(path), content)


class Served(nn.Module):
    """From raw rows (n, *shape) to the opinion of a classifier."""

    shift: Tensor
    scale: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        net, method, features = model.fitted_.net, model.fitted_.method, model.features_
        self.members = nn.ModuleList([_member(net, member) for member in range(method.members)])
        for name in ("shift", "scale"):
            numbers = torch.tensor(getattr(features, name), dtype=torch.float64)
            self.register_buffer(name, numbers.view(features.shape))
        self.method = method.spread(method.members, like=self.shift)
        self.recalibration = model.recalibration_

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = ((x - self.shift) / self.scale).float()
        logits = torch.stack([member(x) for member in self.members]).double()  # (members, n, k)
        opinion = self.method.opinion(logits).mean(0)
        if self.recalibration is not None:
            opinion = self.recalibration.opinion(opinion)
        fine = (x.flatten(1).abs() <= FARTHEST).all(1)  # as `Features.unusable_rows`
        table = fine[:, None]
        return (
            torch.where(fine, opinion.predicted(), -1),
            torch.where(table, opinion.probability, torch.nan),
            torch.where(table, opinion.belief, torch.nan),
            torch.where(fine, opinion.uncertainty, torch.nan),
            torch.where(fine, opinion.entropy, torch.nan),
        )


def _member(net: nn.Module, member: int) -> nn.Module:
    """One of M models as a network without the model axis, (b, *shape) -> (b, k)."""
    if isinstance(net, Stack):
        return net.copies[member]
    alone = joined([folded(net)], slice(member, member + 1))
    return nn.Sequential(nn.Unflatten(0, (1, -1)), alone, nn.Flatten(0, 1))


def _graph(served: Served) -> Any:
    """The ONNX model for any number of rows, without the paths of source files."""
    example = torch.zeros(3, *served.shift.shape, dtype=torch.float64)
    names: Any = {"input_names": [INPUT], "output_names": OUTPUTS, "dynamic_shapes": ({0: "n"},)}
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # of optional packages, and torch's internals
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):
            program = torch.onnx.export(served, (example,), dynamo=True, verbose=False, **names)
    except torch.onnx.OnnxExporterError as error:
        raise InputError(NO_GRAPH) from error
    finally:
        logging.disable(logged)
    assert program is not None
    proto = program.model_proto
    proto.producer_name = KEY
    proto.graph.ClearField("metadata_props")
    for node in proto.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    return proto


def _refuse_other_answers(session: Any, model: CandidateClassifier) -> None:
    """Compare the graph with torch on 20 rows and on one, drawn from the training range."""
    features = model.features_
    drawn = np.random.default_rng(0).random((20, len(features.scale)))
    sample = (drawn * features.scale + features.shift).reshape(-1, *features.shape)
    for rows in (sample, sample[:1]):
        opinion = model._opinion(features.rows(rows))
        answers = session.run(OUTPUTS[1:], {INPUT: rows})
        for name, answer in zip(OUTPUTS[1:], answers, strict=True):
            if not np.allclose(answer, getattr(opinion, name), rtol=0, atol=1e-4):
                raise InputError(NO_GRAPH)
