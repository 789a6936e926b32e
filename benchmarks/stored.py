"""A report that is written as it grows, so that a stopped run can go on."""

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from robustpll.engine.device import chosen_device, device_name


def opened(path: Path, **facts: Any) -> dict[str, Any]:
    """What the file holds already, under the commands that made it."""
    report = json.loads(path.read_text()) if path.exists() else {"sets": {}}
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    before = [each for each in report.get("command", "").split(" && ") if each]
    report |= {
        "command": " && ".join(dict.fromkeys([*before, re.sub(r" --out \S+", "", command)])),
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        **facts,
    }
    return report


def written(report: dict[str, Any], path: Path) -> None:
    """Lists of numbers stand on one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1)
    flat = re.sub(r"\[[^\[\]{}\"]+\]", lambda found: " ".join(found[0].split()), text)
    path.write_text(flat.replace("[ ", "[").replace(" ]", "]") + "\n")


def spread_of(values: torch.Tensor) -> dict[str, Any]:
    """Mean and population standard deviation over the seeds, and each value."""
    return {
        "mean": round(float(values.mean()), 3),
        "std": round(float(values.std(correction=0)), 3),
        "each": [round(float(value), 3) for value in values],
    }
