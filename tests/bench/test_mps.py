"""Processes that share a GPU."""

import os
import subprocess
import sys

import pytest

from robustpll.bench.mps import CONTROL, PIPES, side_by_side


def test_without_the_service_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(PIPES, raising=False)
    with side_by_side() as settings:
        assert settings == {}


def test_a_service_that_the_user_runs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIPES, "elsewhere")
    with side_by_side() as settings:
        assert settings == {}


@pytest.mark.gpu
def test_processes_compute_under_the_service_which_ends_with_them() -> None:
    product = "import torch; print(torch.ones(3, 3, device='cuda').sum().item())"
    with side_by_side() as settings:
        if not settings:
            pytest.skip("NVIDIA's multi-process service is not here")
        for _ in range(2):
            said = subprocess.run(
                [sys.executable, "-c", product],
                env=os.environ | settings,
                capture_output=True,
                text=True,
                check=True,
            )
            assert said.stdout.strip() == "9.0"
    asked = subprocess.run(
        [CONTROL],
        input="get_server_list\n",
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode != 0
