"""A captured step is the eager step; these tests need a GPU, apart from what can be compiled."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from robustpll import METHODS
from robustpll.engine import graphs
from robustpll.engine.augment import Views
from robustpll.engine.data import Rows, Task
from robustpll.engine.layers import Autocast, Dropout
from robustpll.engine.networks import CONVOLUTIONAL, Shape, mlp
from robustpll.engine.random import Draws
from robustpll.engine.train import Training, train
from robustpll.methods import DeepMethod, Proden, RobustPll, RobustPllAt
from robustpll.methods.dst_pll import AutoEncoder

DEEP: dict[str, type[DeepMethod]] = {
    name: kind for name, kind in METHODS.items() if issubclass(kind, DeepMethod)
}
KINDS = DEEP | {kind.name: kind for kind in (AutoEncoder, RobustPllAt)}
COMPILABLE = [name for name, kind in KINDS.items() if kind.compilable]
# numbers in a step come from the host unless it is captured
RANDOM = {"proden_dropout", "valen", "robust_pll_at", "robust_pll_at_ens", "papi", "alim"}
SIZE = {"rows": 600}  # two batches of 256 and one of 88
WAYS = [(name, compiled) for name in KINDS for compiled in (False, True)]


@contextmanager
def nothing_random() -> Iterator[None]:
    """Within it dropout is off, samples are means, and views and mixtures are the same for all.

    Draws differ in a captured step.
    """

    def mean(_: Draws, concentration: torch.Tensor) -> torch.Tensor:
        return concentration / concentration.sum(-1, keepdim=True)

    def zeros(draws: Draws, *shape: int) -> torch.Tensor:
        return torch.zeros(draws.models, *shape, dtype=draws.dtype, device=draws.device)

    def middle(_: RobustPllAt, rows: int, shape: Shape, draws: Draws) -> torch.Tensor:
        return zeros(draws, rows, *shape) + 0.5

    def views(self: Views, rows: int, draws: Draws) -> dict[str, torch.Tensor]:
        return {name: zeros(draws, rows, v.numbers) + 0.3 for name, v in self.recipes.items()}

    def mixing(rows: int, draws: Draws, concentration: int) -> tuple[torch.Tensor, torch.Tensor]:
        partner = torch.arange(rows, device=draws.device).flip(0).expand(draws.models, -1)
        return partner, zeros(draws, 1) + 0.7

    with (
        patch.object(Dropout, "draw", lambda *_: None),
        patch.object(Draws, "dirichlet", mean),
        patch.object(Draws, "normal", zeros),
        patch.object(RobustPllAt, "draw", middle),
        patch.object(Views, "draw", views),
        patch("robustpll.methods.pico.draw_mixing", mixing),
        patch("robustpll.methods.papi.draw_mixing", mixing),
    ):
        yield


def parameters(method: DeepMethod, task: Task) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in train(method, task).net.state_dict().values()]


@contextmanager
def own_adam(used: bool) -> Iterator[None]:
    """Within it steps are those of the library's Adam, not compiled: torch's is less exact.

    Those of SGD are torch's.
    """

    def advance(training: Training) -> None:
        if not isinstance(training.optimizer, AdamW):
            training.optimizer.step()
            return
        with torch.no_grad():
            graphs.adam(training.optimizer, lambda function: function)

    with patch("robustpll.engine.train.optimizer_step", advance) if used else nullcontext():
        yield


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
@pytest.mark.parametrize(("name", "compiled"), WAYS)
def test_captured_and_eager_training_agree_to_rounding(
    name: str, compiled: bool, task_of: Any
) -> None:
    """51 steps, in float64: Adam makes full steps of gradients that are nothing but rounding."""
    method = KINDS[name](epochs=17)
    task = task_of(0, 1, **SIZE, device="cuda")
    with nothing_random(), patch.object(type(method), "captured", new=False), own_adam(compiled):
        eager = parameters(method, task)
    with nothing_random(), patch.object(graphs, "pays_back", return_value=compiled):
        captured = parameters(method, task)
    torch.testing.assert_close(eager, captured, rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["small", "convnet"])
@pytest.mark.parametrize("name", ["proden", "crdpll", "pico"])
def test_captured_and_eager_training_agree_on_views(name: str, network: str, task_of: Any) -> None:
    """Convolutions add in any order, which SGD and Adam enlarge."""
    method = replace(KINDS[name](epochs=5, network=network), augment="strong")
    task = task_of(0, 1, **SIZE, device="cuda", shape=(8, 8))
    with nothing_random(), patch.object(type(method), "captured", new=False):
        eager = parameters(method, task)
    with nothing_random():
        captured = parameters(method, task)
    torch.testing.assert_close(eager, captured, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
def test_a_network_that_cannot_be_compiled_is_recorded_as_it_is(task_of: Any) -> None:
    from torch._dynamo import exc

    def fail(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            raise exc.Unsupported("no")

        return run

    wide = task_of(0, rows=64, shape=(1, 8, 8), device="cuda")
    rows = Rows.of(wide.rows.pool.float(), wide.rows.indices)
    task = Task.of(rows, wide.candidates, wide.seeds)  # only float32 is compiled
    method = Proden(epochs=2, batch_size=32, network="convnet", momentum=0.9)
    with (
        patch.object(graphs, "pays_back", return_value=True),
        patch.object(graphs, "_fast", fail),
        pytest.warns(RuntimeWarning, match="cannot be compiled"),
    ):
        fitted = train(method, task)
    assert fitted.history.loss.isfinite().all()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_captured_step_follows_the_schedule(
    weight_decay: float, compiled: bool, task_of: Any
) -> None:
    """The rate of each step reaches the recorded one; a constant rate leads elsewhere."""
    method = RobustPll(epochs=6, schedule="one-cycle", weight_decay=weight_decay)
    task = task_of(0, 1, **SIZE, device="cuda")
    with patch.object(RobustPll, "captured", new=False), own_adam(compiled):
        eager = parameters(method, task)
    with patch.object(graphs, "pays_back", return_value=compiled):
        captured = parameters(method, task)
        constant = parameters(replace(method, schedule="constant"), task)
    torch.testing.assert_close(eager, captured, rtol=0, atol=1e-6)
    assert (captured[0] - constant[0]).abs().max() > 1e-3


@pytest.mark.gpu
def test_recording_leaves_no_trace(task_of: Any) -> None:
    """One step, captured: had the warm-up steps counted, there would be four."""
    method = RobustPll(epochs=1, batch_size=600, precision="float32")
    task = task_of(0, 1, **SIZE, device="cuda")
    with patch.object(RobustPll, "captured", new=False):
        eager = train(method, task)
    captured = train(method, task)
    torch.testing.assert_close(eager.net.state_dict(), captured.net.state_dict(), rtol=0, atol=1e-5)
    torch.testing.assert_close(eager.label_weights, captured.label_weights, rtol=0, atol=1e-5)
    torch.testing.assert_close(eager.history.loss, captured.history.loss, rtol=1e-5, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in DEEP if name not in RANDOM])
def test_a_step_never_waits_for_the_device(name: str, task_of: Any) -> None:
    steps: list[int] = []
    plain = Training.step

    def watched(self: Training, indices: torch.Tensor, stage: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it does not find every wait
            torch.cuda.set_sync_debug_mode("error")
        try:
            plain(self, indices, stage)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        steps.append(indices.shape[1])

    method = DEEP[name](epochs=2, schedule="one-cycle")
    with patch.object(Training, "step", watched), patch.object(type(method), "captured", new=False):
        train(method, task_of(0, 1, **SIZE, device="cuda"))
    assert steps == [256, 256, 88] * method.total_epochs


@pytest.mark.gpu
@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_networks_of_the_library_are_captured(network: str, task_of: Any) -> None:
    task = task_of(0, 1, **SIZE, device="cuda", shape=(8, 8))
    plain = graphs.CapturedStep.__call__
    with patch.object(graphs.CapturedStep, "__call__", autospec=True, side_effect=plain) as calls:
        fitted = train(RobustPll(epochs=3, network=network), task)
    assert calls.call_count == 9
    assert fitted.history.loss.isfinite().all()


def test_a_short_run_is_not_worth_compiling(task_of: Any) -> None:
    task = task_of(0, 1, **SIZE)
    task = replace(task, prior=task.prior.float())
    for epochs, pays in ((10, False), (10_000_000, True)):
        method = RobustPll(epochs=epochs)
        training: Any = SimpleNamespace(method=method, task=task, net=torch.nn.Sequential())
        assert graphs.pays_back(training) == pays


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("rate", [0.01, torch.tensor(0.01, dtype=torch.float64)])
def test_the_librarys_adam_is_torchs(rate: Any, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator).double() for shape in ((2, 3), (4,))]
    ours, theirs = ([nn.Parameter(values.clone()) for values in start] for _ in range(2))
    adam, reference = (AdamW(p, lr=0.01, weight_decay=weight_decay) for p in (ours, theirs))
    adam.param_groups[0]["lr"] = rate  # with a schedule, a tensor
    for _ in range(20):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator).double()
            two.grad = one.grad.clone()
        with torch.no_grad():
            graphs.adam(adam, lambda function: function)
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
@pytest.mark.parametrize("name", COMPILABLE)
def test_every_step_compiles_as_one_graph(name: str, task_of: Any) -> None:
    """On the CPU, where it can be seen too: no branch on a tensor, no host round trip."""
    from torch._inductor import config as inductor

    method = KINDS[name](epochs=2, batch_size=600)
    task = task_of(*([0] if name == "valen" else [0, 1]), **SIZE)
    with own_adam(used=True):
        plain = parameters(method, task)
    step = Training.step

    def compiled(self: Training, indices: torch.Tensor, stage: int) -> None:
        self.compiled = self.fast_adam = True
        if name == "valen":  # the same samples as from the generator of the only model
            [self.draws.in_step] = self.draws.generators
        step(self, indices, stage)
        for one in self.net.parameters():  # fused optimizers need the same order in memory
            assert one.grad is None or one.grad.stride() == one.stride()

    # Without vector instructions: with them, torch 2.13 reads wrong numbers of transposed tensors.
    with patch.object(Training, "step", compiled), inductor.patch({"cpp.simdlen": 0}):
        again = parameters(method, task)
    torch.testing.assert_close(plain, again, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
def test_a_compiled_network_is_the_plain_one() -> None:
    """In float32 to rounding; in bfloat16 it is as near to that as the plain one."""
    from torch._inductor import config as inductor

    draws = Draws.of((0, 1), like=torch.zeros(()))
    net = mlp((20,), 3, draws)
    x = draws.uniform(100, 20)

    def gradients(forward: Any) -> list[torch.Tensor]:
        loss = -forward(x).log_softmax(-1)[..., 0].mean(1)
        return [*torch.autograd.grad(loss.sum(), [*net.parameters()])]

    with inductor.patch({"cpp.simdlen": 0}):  # as above
        compiled, compiled_bf16 = (
            gradients(torch.compile(kind, fullgraph=True)) for kind in (net, Autocast(net))
        )
    plain, plain_bf16 = gradients(net), gradients(Autocast(net))
    torch.testing.assert_close(plain, compiled, rtol=0, atol=1e-6)
    for exact, bf16, ours in zip(plain, plain_bf16, compiled_bf16, strict=True):
        assert 0 < (ours - exact).norm() < 1.5 * (bf16 - exact).norm() + 0.01 * exact.norm()
