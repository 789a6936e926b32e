"""Kernels of several processes at the same time on one GPU."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PATIENCE = 20.0  # seconds


@contextmanager
def side_by_side() -> Iterator[dict[str, str]]:
    """Environment for processes that are to share a GPU, while NVIDIA's service for that runs.

    Without the service processes take turns: on an H200 three bundles of ten models took as long as
    one after the other, with it 1.8 times less. Where there is no such service, or the environment
    names one, nothing is done.

    >>> with side_by_side() as settings:
    ...     sorted(settings)  # here, without a GPU
    []
    """
    if PIPES in os.environ or shutil.which(CONTROL) is None:
        yield {}
        return
    # One folder for each user: a service that outlived its driver is found again.
    folder = Path(tempfile.gettempdir()) / f"robustpll-mps-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    settings = {PIPES: str(folder), LOGS: str(folder)}
    _told(["-d"], settings)
    if not _told([], settings, "get_server_list\n"):
        yield {}
        return
    try:
        yield settings
    finally:
        _told([], settings, "quit\n")


def _told(arguments: list[str], settings: dict[str, str], words: str = "") -> bool:
    """Whether the service did as it was told."""
    try:
        told = subprocess.run(
            [CONTROL, *arguments],
            input=words,
            text=True,
            env=os.environ | settings,
            timeout=PATIENCE,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.returncode == 0
