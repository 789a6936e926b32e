"""Time of the whole default fit, compared with a random forest of 300 trees in the same run.

    python benchmarks/default_speed.py

Rows are labelled by five simulated annotators; the forest learns their majority. Both use all
cores.
"""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from robustpll import RobustPLLClassifier
from robustpll.datasets.noise import Annotators
from robustpll.engine.device import device_name

SIZES = ((2_000, 20, 5), (100_000, 50, 10))  # rows, features, classes; the second takes long


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = {"machine": device_name(device), "torch": torch.__version__, "sizes": []}
    result["date"] = datetime.now(UTC).date().isoformat()
    for n, d, k in SIZES:
        X, y = make_classification(
            n, d, n_informative=d // 2, n_classes=k, n_clusters_per_class=1, random_state=0
        )
        answers = Annotators().apply(X, y, random_state=0)
        majority = answers.prior.argmax(-1)
        start = time.perf_counter()
        RandomForestClassifier(300, n_jobs=-1, random_state=0).fit(X, majority)
        middle = time.perf_counter()
        model = RobustPLLClassifier(random_state=0).fit(X, answers)
        seconds = {"forest": middle - start, "default": time.perf_counter() - middle}
        seconds["ratio"] = seconds["default"] / seconds["forest"]
        right = float(np.mean(model.labels_ == y))
        result["sizes"].append({"rows": n, "features": d, "classes": k, "labels": right} | seconds)
        print(result["sizes"][-1], flush=True)
    name = f"default-speed-{result['date']}-{device.type}.json"
    path = Path(__file__).parent / "results" / name
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
