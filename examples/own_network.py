"""A torch module of one's own, as a single network and as an ensemble, saved and read back.

python examples/own_network.py
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor, nn

import robustpll
from robustpll import RobustPLLClassifier


class Residual(nn.Module):
    """Convolutions beside a shortcut; rows are grey pictures (b, h, w)."""

    def __init__(self, shape: tuple[int, ...], k: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.second = nn.Sequential(
            nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, kernel_size=3, padding=1)
        )
        self.norm = nn.BatchNorm1d(16 * shape[0] * shape[1])
        self.output = nn.Linear(16 * shape[0] * shape[1], k)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x[:, None])
        return self.output(self.norm((h + self.second(h)).relu().flatten(1)))


def main() -> None:
    digits = load_digits()
    pictures, truth = digits.images, digits.target
    rng = np.random.default_rng(0)
    candidates = [{label, *rng.choice(10, size=2)} for label in truth[:1200]]

    for members in (1, 3):
        model = RobustPLLClassifier(network=Residual, members=members, epochs=15, random_state=0)
        model.fit(pictures[:1200], candidates)
        print(f"{members} of them: accuracy {model.score(pictures[1200:], truth[1200:]):.3f}")

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "residual.pll"
        model.save(file)  # numbers alone: code is never read from a file
        again = robustpll.load(file, network=Residual)
    same = again.predict(pictures[1200:]) == model.predict(pictures[1200:])
    print("read back, it says the same:", bool(same.all()))


if __name__ == "__main__":
    main()
