"""Milliseconds per network and epoch of each network method, and its ratio to RobustPll.

    python benchmarks/method_speed.py

Random data of 60,000 x 784 with 10 classes on CUDA (6,000 rows on a CPU), 5 runs. A unit is what
RobustPll computes for one network: the ratio compares with RobustPll of as many networks, divided
by the units.
"""

from dataclasses import replace
from functools import cache
from unittest.mock import patch

from common import begin
from training_speed import CUDA, epoch_seconds, random_task

from robustpll import METHODS
from robustpll.engine import graphs
from robustpll.methods import DeepMethod, Proden, RobustPll

RUNS = 5
UNITS = {"proden_edl": 2.0, "crosel": 4.0, "proden_adv_ens": 2.5, "valen": 10.0}
NETWORKS = {"crosel": 1}  # its units count both of its networks
DEEP = tuple(name for name, kind in METHODS.items() if issubclass(kind, DeepMethod))


def main() -> None:
    args, report = begin(__doc__, methods=DEEP, rows=60_000 if CUDA else 6_000)
    report["preset"] = "paper"
    with patch.object(graphs, "pays_back", return_value=CUDA):
        for name in args.methods:
            method = METHODS[name].paper()
            networks, units = RUNS * NETWORKS.get(name, method.members), UNITS.get(name, 1.0)
            seconds = seconds_of(method, RUNS, args.rows) / networks
            if name == "proden_edl":  # its other half
                seconds += seconds_of(Proden(), RUNS, args.rows) / networks
            yardstick = seconds_of(RobustPll.paper(), networks, args.rows) / networks
            ratio = seconds / yardstick / units
            result = {"ms": 1000 * seconds, "units": units, "ratio": ratio}
            report.add(name, result, part="methods")


@cache
def seconds_of(method: DeepMethod, runs: int, rows: int) -> float:
    """Return the seconds of an epoch of the last stage, after its graphs are recorded."""
    few = replace(method, epochs=4 if CUDA else 2)
    stages = [few.stage(epoch) for epoch in range(few.total_epochs)]
    return epoch_seconds(few, random_task(runs, rows), first=stages.index(stages[-1]) + 1)


if __name__ == "__main__":
    main()
