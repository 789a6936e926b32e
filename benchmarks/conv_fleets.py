"""Would pictures' networks gain from one grouped computation rather than copies side by side?

    python benchmarks/conv_fleets.py

Forward and backward pass of M networks on batches of 256 pictures of 28 x 28: the library's `Stack`
of copies, and the same networks under `torch.func.vmap` (grouped convolutions). On CUDA both as a
graph, as in training. Statistics of BatchNorm are not tracked on either side.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, replace_all_batch_norm_modules_, stack_module_state, vmap

from robustpll.engine.device import chosen_device, computing
from robustpll.engine.networks import NETWORKS

DEVICE = chosen_device("auto")
BATCH, SHAPE, CLASSES = 256, (28, 28), 10


def copies_side_by_side(nets: list[nn.Module], x: Tensor) -> Callable[[], None]:
    def run() -> None:
        out = torch.stack([net(rows) for net, rows in zip(nets, x, strict=True)])
        out.square().mean().backward()

    return run


def grouped(nets: list[nn.Module], x: Tensor) -> Callable[[], None]:
    parameters, buffers = stack_module_state(nets)
    base = nets[0]

    def forward(own: dict[str, Tensor], kept: dict[str, Tensor], rows: Tensor) -> Tensor:
        result: Tensor = functional_call(base, (own, kept), (rows,))
        return result

    def run() -> None:
        out = vmap(forward)(parameters, buffers, x)
        out.square().mean().backward()

    return run


def milliseconds(run: Callable[[], None], nets: list[nn.Module], times: int) -> float:
    """Of one forward and backward pass."""
    if DEVICE.type == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        for net in nets:
            net.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        run()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun) / times


def main() -> None:
    times = 100 if DEVICE.type == "cuda" else 2
    for name, build in NETWORKS.items():
        for models in (1, 5, 25) if DEVICE.type == "cuda" else (1, 5):
            make = partial(build, SHAPE, CLASSES)
            nets = [replace_all_batch_norm_modules_(make().to(DEVICE)) for _ in range(models)]
            x = torch.rand(models, BATCH, *SHAPE, device=DEVICE)
            with computing("auto", DEVICE):
                apart = milliseconds(copies_side_by_side(nets, x), nets, times)
                together = milliseconds(grouped(nets, x), nets, times)
            print(
                f"{name}, M = {models}: copies {apart:.2f} ms, grouped {together:.2f} ms, "
                f"{apart / together:.2f}x"
            )


if __name__ == "__main__":
    main()
