"""One step as a CUDA graph, compiled where that pays back; the only file that knows of graphs.

What a graph asks for: fixed shapes (one graph for each stage and batch size), everything that
changes between steps in tensors written in place, and random numbers from a registered generator.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import AdamW

from robustpll.engine.layers import Stack
from robustpll.engine.random import seed_of

if TYPE_CHECKING:
    from robustpll.engine.train import Training

Step = Callable[[Tensor, int], None]  # positions (M, b) and the stage

WARM_UPS = 3
LIMITS = {"recompile_limit": 100_000, "accumulated_recompile_limit": 100_000}
# What compiling costs once and saves in each step, in seconds, for a step of one model and for each
# further one: measured on an H200 by benchmarks/training_speed.py. It is skipped for shorter runs.
COMPILE_COST = 15.0
COMPILE_SAVES, COMPILE_SAVES_PER_MODEL = 3.8e-4, 9e-6


def step_of(training: "Training") -> Step:
    """How to run the steps of a training: captured on CUDA, plainly elsewhere."""
    on_cuda = training.task.prior.device.type == "cuda"
    return Captured(training) if on_cuda and capturable(training) else training.step


def compilable(training: "Training") -> bool:
    """Whether torch's compiler takes a step; M copies of a module are M times as much code."""
    copies = any(isinstance(part, Stack) for part in training.net.modules())
    return training.own.compilable and not copies


def capturable(training: "Training") -> bool:
    """Foreign modules that may draw from torch's global generator cannot be captured."""
    foreign = any(isinstance(part, Stack) and part.random for part in training.net.modules())
    return training.own.captured and not foreign


def pays_back(training: "Training") -> bool:
    """Whether compiling saves more time than it takes."""
    steps = training.own.total_epochs * (len(training.task) / training.own.batch_size)
    saved = COMPILE_SAVES + COMPILE_SAVES_PER_MODEL * training.task.models
    return training.task.prior.dtype == torch.float32 and steps * saved > COMPILE_COST


class Captured:
    """Records a step at its first call for a stage and batch size, and replays it after."""

    def __init__(self, training: "Training") -> None:
        self.training = training
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()
        device = training.task.prior.device
        seed = seed_of(*training.task.seeds, training.own.name, "captured step")
        training.draws.in_step = torch.Generator(device).manual_seed(seed)
        self.compiled = pays_back(training)

    def __call__(self, at: Tensor, stage: int) -> None:
        key = (stage, at.shape[1])
        if key not in self.graphs:
            self.graphs[key] = self._record(at, stage)
        graph, static = self.graphs[key]
        static.copy_(at)
        graph.replay()

    def _record(self, at: Tensor, stage: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        training, static = self.training, at.clone()
        # The last batch of an epoch has a size of its own: one step in many is not worth compiling.
        whole = at.shape[1] == min(training.own.batch_size, len(training.task))
        training.fast_adam = self.compiled  # parameters have the same size whatever the batch
        training.compiled = self.compiled and whole and compilable(training)
        # Bundles in flight record on the stream they replay on: what cuBLAS and Adam keep for a
        # stream must not be shared by graphs that run side by side.
        own, default = torch.cuda.current_stream(), torch.cuda.default_stream()
        stream = recording_stream(at.device) if own == default else own
        stream.wait_stream(own)
        with torch.cuda.stream(stream), no_trace(training):
            for _ in range(WARM_UPS):
                training.step(static, stage)
        own.wait_stream(stream)
        training.optimizer.zero_grad()  # the graph allocates gradients in its own memory
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(training.draws.in_step)
        # Other threads, such as one that gathers rows, may go on meanwhile.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode=mode):
            training.step(static, stage)
        return graph, static


@cache
def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """For trainings on the default stream, which cannot record; one for all of them, since cuBLAS
    keeps 32 MiB for each stream that it has seen.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def no_trace(training: "Training") -> Iterator[None]:
    """What is trained within it is as before afterwards; new optimiser state is zero."""
    before = {id(tensor): (tensor, tensor.detach().clone()) for tensor in _changing(training)}
    generator = training.draws.in_step
    numbers = None if generator is None else generator.get_state()
    yield
    with torch.no_grad():
        for tensor in _changing(training):
            if id(tensor) in before:
                tensor.copy_(before[id(tensor)][1])
            else:
                tensor.zero_()
    if generator is not None and numbers is not None:
        generator.set_state(numbers)


def _changing(training: "Training") -> list[Tensor]:
    """Every tensor that a step writes."""
    state = training.optimizer.state.values()
    kept: list[Any] = [value for each in state for value in each.values()]
    kept += [*training.net.parameters(), *training.net.buffers(), *training.state.rows.values()]
    kept += [*training.state.memory.values(), training.total]
    return [value for value in kept if isinstance(value, Tensor)]


@contextmanager
def _compiling() -> Iterator[None]:
    """Different methods and sizes share compiled code: torch's limits on that are raised."""
    from torch._dynamo import config

    with config.patch(LIMITS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's advice is not for our users
        yield


def advance(training: "Training") -> None:
    """The optimiser's step, compiled where the training is long enough for it."""
    if training.fast_adam and isinstance(training.optimizer, AdamW):
        with torch.no_grad(), _compiling():
            adam(training.optimizer, _compiled_moves())
    else:
        training.optimizer.step()


def adam(optimizer: AdamW, moves: Callable[..., None]) -> None:
    """A step of AdamW by `moves`.

    torch's fused kernel gives 65,536 parameters to each processor of the device, so few of them
    work for few models: compiled, a step of one model is a fifth faster, of a hundred a twentieth.
    """
    for group in optimizer.param_groups:
        used = [parameter for parameter in group["params"] if parameter.grad is not None]
        states = [optimizer.state[parameter] for parameter in used]
        for parameter, state in zip(used, states, strict=True):
            if not state:  # as AdamW begins
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        torch._foreach_add_([state["step"] for state in states], 1)
        moments = tuple([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        rates = (group["lr"], group["weight_decay"])
        moves(used, [parameter.grad for parameter in used], moments, states[0]["step"], rates)


def adam_moves(
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: tuple[list[Tensor], list[Tensor]],
    count: Tensor,
    rates: tuple[float, float],
) -> None:
    """Adam with decoupled weight decay, in place, where `count` is the number of this step."""
    (means, squares), (learning_rate, weight_decay) = moments, rates
    count = count.double()  # in float32, 1 - 0.999 would be off by a part in 20,000
    torch._foreach_mul_(parameters, 1 - learning_rate * weight_decay)
    torch._foreach_lerp_(means, gradients, 1 - 0.9)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - 0.999)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, (1 - 0.999**count).sqrt())
    torch._foreach_add_(roots, 1e-8)
    moves = torch._foreach_div(means, roots)
    torch._foreach_mul_(moves, learning_rate / (1 - 0.9**count))
    torch._foreach_sub_(parameters, moves)


@cache
def _compiled_moves() -> Callable[..., None]:
    return torch.compile(adam_moves, dynamic=False, fullgraph=True)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled once for each shape and kind of method; as it is where that fails.

    The compiler takes seconds to load: it is asked only when a training is worth it.
    """
    failed: set[str] = set()

    @cache
    def fast() -> Callable[..., Any]:
        return torch.compile(function, dynamic=False, fullgraph=True)

    def run(training: "Training", *arguments: Any) -> Any:
        if not training.compiled or training.own.name in failed:
            return function(training, *arguments)
        from torch._dynamo import exc

        try:
            with _compiling():
                return fast()(training, *arguments)
        except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
            failed.add(training.own.name)
            message = f"{training.own.title} cannot be compiled and runs slower: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return function(training, *arguments)

    return run
