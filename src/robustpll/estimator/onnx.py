"""ONNX export: scaling, networks, trees or an estimator, and opinions in one graph."""

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
from torch.nn.utils.rnn import pad_sequence

import robustpll
from robustpll._files import write_whole
from robustpll.engine.layers import Stack, folded, joined
from robustpll.engine.modules import FARTHEST
from robustpll.engine.predict import Networks
from robustpll.errors import InputError
from robustpll.estimator.abstention import networks_of
from robustpll.estimator.base import CandidateClassifier
from robustpll.methods import DeepMethod, auto
from robustpll.methods.forest import Forest
from robustpll.methods.wrapped import WrappedModels
from robustpll.opinion import Opinion

FORMAT = 1  # raised whenever a reader of an older file would misread a newer one
KEY = "robustpll"  # of the metadata, which is JSON
INPUT = "X"
OUTPUTS = ("predicted", "probability", "belief", "uncertainty", "entropy")
NO_GRAPH = (
    "torch cannot write this network as an ONNX graph that answers the same. Its forward() must "
    "not branch on values, draw random numbers, nor depend on how many rows there are."
)


def export_onnx(model: CandidateClassifier, path: str | Path) -> None:
    """Write a classifier with networks, trees or a wrapped estimator as an ONNX file.

    The graph takes unscaled rows ``X`` (n, *shape) in float64 and gives ``predicted`` (n,), an
    index into the classes, ``probability`` and ``belief`` (n, k), ``uncertainty`` and ``entropy``
    (n,), recalibrated if the classifier is. Rows that `predict` refuses get NaN, and -1 as
    ``predicted``. The metadata ``robustpll`` is JSON with the names of classes and columns.

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
    fitted: Any = model.fitted_
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # by which torch writes graphs

        if isinstance(fitted, WrappedModels) and _forest_of(fitted) is None:
            import skl2onnx  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"For an ONNX file, {error.name} is needed. Run pip install 'robustpll[onnx]', or use "
            "save(path), which needs no further package."
        ) from error
    _refuse_without_graph(model)
    model = copy.copy(model)
    model.fitted_ = fitted = _on_cpu(fitted)
    is_composed = isinstance(fitted, WrappedModels) or _forest_of(fitted) is not None
    with torch.no_grad():
        served = nn.Sequential(Scaling(model), Answers(model)).eval()
        rows = {INPUT: _example(model)}
        proto = _composed_graph(model) if is_composed else _graph(served, rows, OUTPUTS)
    features = ("shape", "columns", "categories", "fill")
    about = {
        "format": FORMAT,
        "version": robustpll.__version__,
        "method": fitted.method.name,
        "members": next((part.method.members for part in networks_of(fitted)), 1),
        "classes": model.classes_.tolist(),
        **{name: getattr(model.features_, name) for name in features},
        "recalibration": model.recalibration_ and asdict(model.recalibration_),
    }
    onnx.helper.set_model_props(proto, {KEY: json.dumps(about)})
    content: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    _refuse_other_answers(session, model)
    write_whole(Path(path), content)


def _refuse_without_graph(model: CandidateClassifier) -> None:
    if model.features_.texts or model.features_.reduction is not None:
        raise InputError(
            "A model of texts or of sparse rows has no ONNX graph: it would lack their reduction "
            "to numbers. Use save(path) instead."
        )
    if model.features_.layout is not None:
        raise InputError(
            "A model of ids or of several arrays has no ONNX graph, because a graph takes one "
            "array of numbers. Use save(path) instead, or export the module with torch.onnx."
        )
    fitted: Any = model.fitted_
    networks = networks_of(fitted)
    draws = any(type(part.method).outputs is not DeepMethod.outputs for part in networks)
    if draws or not (networks or isinstance(fitted, WrappedModels | auto.Stack)):
        problem = f"{fitted.method.title} is no network, or predicts by random passes through one"
        raise InputError(f"{problem}: it has no ONNX graph. Use save(path) instead.")


def _on_cpu(fitted: Any) -> Any:
    """A copy of a fitted model, or of a part of it, that predicts on the host."""
    if isinstance(fitted, Networks):
        return replace(fitted, net=copy.deepcopy(fitted.net).cpu())
    if isinstance(fitted, WrappedModels) and fitted.forest is not None:
        forest = fitted.forest.to(torch.device("cpu"))
        return replace(fitted, learned=(fitted.learned[0] | {"estimator": forest},))
    if isinstance(fitted, auto.Stack):
        (run,) = fitted.runs
        parts = {name: _on_cpu(part) for name, part in run.parts.items()}
        return replace(fitted, runs=(replace(run, parts=parts),))
    return fitted


def _forest_of(fitted: Any) -> Forest | None:
    """The forest of a model that holds one as tensors."""
    parts = fitted.runs[0].parts.values() if isinstance(fitted, auto.Stack) else (fitted,)
    return next((part.forest for part in parts if isinstance(part, WrappedModels)), None)


class Scaling(nn.Module):
    """From raw rows (n, *shape) to scaled ones in float32."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        features = model.features_
        self.bent = sorted(features.curves)  # numbers with a curve
        self.shift, self.scale = (
            nn.Buffer(torch.tensor(numbers, dtype=torch.float64).view(features.shape))
            for numbers in (features.shift, features.scale)
        )
        if curves := [features.curves[number] for number in self.bent]:
            self.knots, self.levels = (_padded(curves, name) for name in ("knots", "levels"))
            width = self.knots.diff()
            self.width = nn.Buffer(torch.where(width > 0, width, 1.0))  # padding rises by 0

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.shift) / self.scale
        if self.bent:  # the sum of each piece's rise; ONNX has no searchsorted
            column = x[:, self.bent]
            inside = column.clamp(0, 1)
            share = ((inside[..., None] - self.knots[:, :-1]) / self.width).clamp(0, 1)
            curved = (share * self.levels.diff()).sum(-1) + column - inside
            x = x.index_copy(1, torch.tensor(self.bent), curved)
        return x.float()


def _padded(curves: list[Any], name: str) -> nn.Buffer:
    """Numbers of curves, (curves, most); the rest is 1."""
    numbers = [torch.tensor(getattr(curve, name), dtype=torch.float64) for curve in curves]
    return nn.Buffer(pad_sequence(numbers, batch_first=True, padding_value=1.0))


class Members(nn.Module):
    """From scaled rows (n, *shape) to the mean opinion of networks."""

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        method, net = networks.method, networks.net
        self.logits = net.logits if isinstance(net, Stack) else lambda member, x: member(x)
        self.members = nn.ModuleList(net.copies if isinstance(net, Stack) else ())
        for member in range(len(self.members), method.members):  # without the model axis
            alone = joined([folded(net)], slice(member, member + 1))
            self.members.append(nn.Sequential(nn.Unflatten(0, (1, -1)), alone, nn.Flatten(0, 1)))
        like = torch.empty(0, dtype=torch.float64)
        self.method = method.spread(method.members, like=like)

    def forward(self, x: Tensor) -> Opinion:
        logits = torch.stack([self.logits(member, x) for member in self.members]).double()
        return self.method.opinion(logits).mean(0)


class Answers(nn.Module):
    """From scaled rows x to the outputs of a graph: by networks, and opinions of other learners."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        parts = [Members(networks) for networks in networks_of(model.fitted_)]
        self.networks = nn.ModuleList(parts)  # one, or none
        self.run = model.fitted_.runs[0] if isinstance(model.fitted_, auto.Stack) else None
        self.recalibration = model.recalibration_

    def forward(self, x: Tensor, *others: Opinion) -> tuple[Tensor, ...]:
        opinions = [*(part(x) for part in self.networks), *others]
        opinion = opinions[0]
        if self.run is not None:
            evidence = map(auto.evidence_of, opinions)
            opinion = self.run.combined(dict(zip(self.run.parts, evidence, strict=True)))
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


class OfScores(Answers):
    """From an estimator's numbers (n, m) and scaled rows to the outputs, as `probability_of`."""

    def __init__(self, model: Any, columns: Tensor) -> None:
        super().__init__(model)
        self.places = nn.Buffer(torch.eye(len(columns), dtype=torch.float64)[columns])  # (m, k)

    def forward(self, scores: Tensor, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        weights = scores.double().clamp(min=0.0)
        total = weights.sum(-1, keepdim=True)
        weights = torch.where(total > 0, weights, 1.0)
        probability = (weights / weights.sum(-1, keepdim=True)) @ self.places
        return super().forward(x, Opinion.of_probability(probability))


def _example(model: CandidateClassifier) -> Tensor:
    return torch.zeros(3, *model.features_.shape, dtype=torch.float64)


def _composed_graph(model: Any) -> Any:
    if _forest_of(model.fitted_) is not None:
        return _estimator_graph(model)
    try:
        return _estimator_graph(model)
    except Exception as error:  # skl2onnx and onnx raise many kinds
        raise InputError(
            f"skl2onnx cannot write {type(model.fitted_.estimators[0]).__name__} as an ONNX graph "
            f"({str(error).splitlines()[0][:80]}). Use another estimator."
        ) from error


def _estimator_graph(model: Any) -> Any:
    """Graphs of the scaling, the estimator and the opinion, one after the other."""
    from onnx import compose

    rows, fitted, forest = _example(model), model.fitted_, _forest_of(model.fitted_)
    columns = torch.ones(len(model.classes_), dtype=torch.bool)
    if isinstance(fitted, WrappedModels):
        columns = fitted.learned[0]["columns"]
    scaling = nn.Sequential(Scaling(model), nn.Flatten(1))
    before = _graph(scaling.eval(), {INPUT: rows}, ("scaled",))
    scores = torch.zeros(3, int(columns.sum()))
    parts = {"scores": scores, "rows": rows.float().flatten(1)}
    after = _graph(OfScores(model, columns).eval(), parts, OUTPUTS)
    opset = next(entry.version for entry in after.opset_import if entry.domain == "")
    width = parts["rows"].shape[1]
    if forest is None:
        estimator = _converted(fitted.estimators[0], width, opset)
    else:
        estimator = _trees_graph(forest, width, opset)
    for part in (estimator, before):
        part.ir_version = after.ir_version
    answer = estimator.graph.output[-1].name
    maps: Any = {"io_map": [("scaled", "estimator/x")], "outputs": ["scaled", answer]}
    joined = compose.merge_models(before, estimator, **maps)
    after = compose.add_prefix(after, "opinion/", rename_outputs=False)
    both = [(answer, "opinion/scores"), ("scaled", "opinion/rows")]
    return compose.merge_models(joined, after, io_map=both)


def _converted(estimator: Any, width: int, opset: int) -> Any:
    """The graph of an estimator for rows (n, width) in float32; its last output are its numbers."""
    from onnx import compose
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    inputs: Any = {"initial_types": [("x", FloatTensorType([None, width]))], "options": options}
    proto = convert_sklearn(estimator, target_opset={"": opset, "ai.onnx.ml": 3}, **inputs)
    versions = {entry.domain: entry.version for entry in proto.opset_import} | {"": opset}
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)
    proto = compose.add_prefix(proto, "estimator/")
    # skl2onnx says one column, whatever the number of outputs
    proto.graph.output[-1].type.tensor_type.shape.dim[1].ClearField("dim_value")
    return proto


def _trees_graph(forest: Forest, width: int, opset: int) -> Any:
    """The graph of a forest for rows (n, width) in float32: one operator that walks all trees."""
    from onnx import TensorProto, helper

    nodes, is_leaf, tree = torch.arange(len(forest.feature)), forest.is_leaf, forest.tree
    k, (leaf, target) = forest.value.shape[1], forest.value.nonzero().T  # most values are 0
    leaves = nodes[is_leaf][leaf]
    first, second = (torch.where(is_leaf, 0, forest.children[:, side]) for side in (0, 1))
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["estimator/x"],
        ["estimator/scores"],
        domain="ai.onnx.ml",
        n_targets=k,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=nodes.tolist(),
        nodes_featureids=forest.feature.tolist(),
        nodes_values=forest.threshold.tolist(),
        nodes_modes=["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf.tolist()],
        nodes_truenodeids=first.tolist(),
        nodes_falsenodeids=second.tolist(),
        target_treeids=tree[leaves].tolist(),
        target_nodeids=leaves.tolist(),
        target_ids=target.tolist(),
        target_weights=(forest.value[leaf, target] / len(forest.roots)).tolist(),
    )
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])]
        for name, size in (("estimator/x", width), ("estimator/scores", k))
    )
    graph = helper.make_graph([node], "trees", inputs, outputs)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports)


def _graph(served: nn.Module, inputs: dict[str, Tensor], outputs: tuple[str, ...]) -> Any:
    """The ONNX model for any number of rows, without the paths of source files."""
    shapes = tuple({0: "n"} for _ in inputs)
    names: Any = {"input_names": [*inputs], "output_names": outputs, "dynamic_shapes": shapes}
    examples = tuple(inputs.values())
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # of optional packages, and torch's internals
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):
            program = torch.onnx.export(served, examples, dynamo=True, verbose=False, **names)
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
    """Compare the graph with torch on 20 rows and on one: drawn between shift and shift + scale."""
    # With trees, two may differ: another rounding moves a row that is on a threshold.
    features, differ = model.features_, 0
    drawn = np.random.default_rng(0).random((20, len(features.scale)))
    drawn[:2] = [[0.0], [1.0]]  # the ends of the range, too
    sample = (drawn * features.scale + features.shift).reshape(-1, *features.shape)
    for rows in (sample, sample[:1]):
        opinion = model._opinion(features.rows(rows))
        for name, answer in zip(OUTPUTS[1:], session.run(OUTPUTS[1:], {INPUT: rows}), strict=True):
            close = np.isclose(answer, getattr(opinion, name), rtol=0, atol=1e-4)
            differ = max(differ, int((~close.reshape(len(rows), -1).all(1)).sum()))
    if differ > (0 if _forest_of(model.fitted_) is None else 2):
        raise InputError(NO_GRAPH)
