"""A training step as a CUDA graph, compiled where that saves time; no other file knows graphs.

A graph needs fixed shapes (one graph per stage and batch size), tensors written in place for
everything that changes between steps, and random numbers from a registered generator.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import AdamW

from robustpll.engine.augment import Views
from robustpll.engine.layers import Stack, pass_through, stacks_of
from robustpll.engine.random import seed_of

if TYPE_CHECKING:
    from robustpll.engine.train import Training

WARM_UPS = 3
LIMITS = {"recompile_limit": 100_000, "accumulated_recompile_limit": 100_000}
# Seconds that compiling costs once, and saves in each step: for one model, and for each further
# model. Measured on an H200 by benchmarks/training_speed.py. Shorter trainings are not compiled.
COMPILE_COST = 15.0
COMPILE_SAVES, COMPILE_SAVES_PER_MODEL = 3.8e-4, 9e-6
SAVES_PER_PICTURE = 2.5e-6  # the same for each view of a picture, in copies of resnet9


def step_of(training: "Training") -> Callable[[Tensor, int], None]:
    """Return a function of positions (M, b) and a stage: a step, captured on CUDA."""
    # User modules are not captured, because they may draw from torch's global generator.
    foreign = any(stack.random for stack in stacks_of(training.net))
    foreign = foreign or (training.views is not None and training.views.is_foreign)
    on_cuda = training.task.prior.device.type == "cuda"
    alone = training.shard is None  # processes wait for each other within a step
    captured = on_cuda and alone and training.method.captured and not foreign
    return CapturedStep(training) if captured else training.step


def pays_back(training: "Training") -> bool:
    """Whether compiling saves more time than it takes."""
    method, task = training.method, training.task
    steps, saved = len(task) / method.batch_size, COMPILE_SAVES_PER_MODEL * task.models
    saved += COMPILE_SAVES
    if stacks_of(training.net):
        saved = SAVES_PER_PICTURE * method.batch_size * max(1, len(method.views)) * task.models
    enough = method.total_epochs * steps * saved > COMPILE_COST
    return task.prior.dtype == torch.float32 and enough


class CapturedStep:
    """Records a step at its first call for a stage and batch size, and replays it afterwards."""

    def __init__(self, training: "Training") -> None:
        self.training = training
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()
        device = training.task.prior.device
        seed = seed_of(*training.task.seeds, training.method.name, "captured step")
        training.draws.in_step = torch.Generator(device).manual_seed(seed)
        training.fast_adam = pays_back(training)
        # M copies of a module would be M times as much code to compile: each is compiled alone.
        stacks = stacks_of(training.net)
        self.stacks = stacks if training.fast_adam else []
        self.compiled = training.fast_adam and training.method.compilable and not stacks

    def __call__(self, indices: Tensor, stage: int) -> None:
        key = (stage, indices.shape[1])
        if key not in self.graphs:
            self.graphs[key] = self._record(indices, stage)
        graph, static = self.graphs[key]
        static.copy_(indices)
        graph.replay()

    def _record(self, indices: Tensor, stage: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        if self.stacks:
            from torch._dynamo import exc

            try:
                return self._recorded(indices, stage)
            except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
                message = f"The network cannot be compiled and runs slower: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
                self.stacks = []
        return self._recorded(indices, stage)

    def _recorded(self, indices: Tensor, stage: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        training, static = self.training, indices.clone()
        # The last batch of an epoch has its own size; one step in many is not worth compiling.
        full_batch = indices.shape[1] == min(training.method.batch_size, len(training.task))
        training.compiled = self.compiled and full_batch
        current, stream = torch.cuda.current_stream(), recording_stream(indices.device)
        stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with compiled_copies(training, self.stacks if full_batch else []), fastest_convolutions():
            with torch.cuda.stream(stream), restored_afterwards(training):
                for _ in range(WARM_UPS):
                    training.step(static, stage)
            current.wait_stream(stream)
            training.optimizer.zero_grad()  # the graph allocates gradients in its own memory
            graph.register_generator_state(training.draws.in_step)
            # Other threads, such as the one that gathers rows, may go on meanwhile.
            mode = "thread_local"
            with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode=mode):
                training.step(static, stage)
        return graph, static


@contextmanager
def compiled_copies(training: "Training", stacks: list[Stack]) -> Iterator[None]:
    """Compile one module of each stack, and views; all copies share its code."""
    for stack in stacks:
        stack.run = _fast(pass_through)
    if stacks:
        training.make_views = _fast(Views.__call__)
    try:
        yield
    finally:
        for stack in stacks:
            stack.run = pass_through
        training.make_views = Views.__call__


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms; a recording keeps the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@cache
def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings: cuBLAS keeps 32 MiB for each stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def restored_afterwards(training: "Training") -> Iterator[None]:
    """Undo all training steps within the context; new optimizer state becomes zero."""
    saved = {id(tensor): (tensor, tensor.detach().clone()) for tensor in _written(training)}
    assert training.draws.in_step is not None
    random_state = training.draws.in_step.get_state()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor in _written(training):
                if id(tensor) in saved:
                    tensor.copy_(saved[id(tensor)][1])
                else:
                    tensor.zero_()
        training.draws.in_step.set_state(random_state)


def _written(training: "Training") -> list[Tensor]:
    """Every tensor that a step writes."""
    optimizer_state = training.optimizer.state.values()
    values: list[Any] = [value for state in optimizer_state for value in state.values()]
    values += [*training.net.parameters(), *training.net.buffers(), *training.state.rows.values()]
    values += [*training.state.memory.values(), training.total]
    return [value for value in values if isinstance(value, Tensor)]


@cache
def _fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function; torch's compiler is loaded only when needed, as it takes seconds."""
    from torch._dynamo import config

    fast = torch.compile(function, dynamic=False, fullgraph=True)

    def run(*arguments: Any) -> Any:
        # Different methods and sizes share compiled code; the compiler's advice is not for users.
        with config.patch(LIMITS), warnings.catch_warnings(action="ignore"):
            return fast(*arguments)

    return run


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` where the training asks for it; if that fails, it runs as it is."""
    failed: set[str] = set()

    def run(training: "Training", *arguments: Any) -> Any:
        if not training.compiled or training.method.name in failed:
            return function(training, *arguments)
        from torch._dynamo import exc

        try:
            return _fast(function)(training, *arguments)
        except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
            failed.add(training.method.name)
            message = f"{training.method.title} cannot be compiled and runs slower: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return function(training, *arguments)

    return run


def optimizer_step(training: "Training") -> None:
    """Run the optimizer's step, compiled where the training is long enough for it."""
    if training.fast_adam and isinstance(training.optimizer, AdamW):
        with torch.no_grad():
            adam(training.optimizer, _fast)
    else:
        training.optimizer.step()


def adam(optimizer: AdamW, made_fast: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Run a step of AdamW by compiled functions, which are faster than torch's fused kernel."""
    for group in optimizer.param_groups:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        states = [optimizer.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:  # initial values of AdamW
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        torch._foreach_add_([state["step"] for state in states], 1)
        moments = tuple([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        gradients = [parameter.grad for parameter in parameters]
        shrink = group["lr"] * group["weight_decay"]
        factors = made_fast(adam_factors)(states[0]["step"], group["lr"])
        made_fast(adam_update)(parameters, gradients, moments, factors, shrink)


def adam_factors(count: Tensor, learning_rate: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of Adam's roots and means in step number `count`.

    In a kernel of its own: `adam_update` would compute the powers for each parameter again.
    """
    wide = count.double()  # in float32, 1 - 0.999 would be wrong by one part in 20,000
    return (1 - 0.999**wide).rsqrt(), learning_rate / (1 - 0.9**wide)


def adam_update(
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: tuple[list[Tensor], list[Tensor]],
    factors: tuple[Tensor, Tensor],
    shrink: float | Tensor,
) -> None:
    """Adam with decoupled weight decay, in place."""
    (means, squares), (root, rate) = moments, factors
    if isinstance(shrink, Tensor) or shrink:
        torch._foreach_mul_(parameters, 1 - shrink)
    torch._foreach_lerp_(means, gradients, 1 - 0.9)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - 0.999)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_mul_(roots, root)
    torch._foreach_add_(roots, 1e-8)
    updates = torch._foreach_div(means, roots)
    torch._foreach_mul_(updates, rate)
    torch._foreach_sub_(parameters, updates)
