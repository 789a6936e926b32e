"""Candidates that noise made, named and packed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustpll.bench.run import FORMAT, key_of, noise_as_dict, with_content
from robustpll.datasets.noise import Noise


@dataclass(frozen=True)
class Drawn:
    """Which candidates: of a dataset's training rows, by a noise, with a seed."""

    dataset: str
    noise: Noise
    seed: int
    content: str = ""  # which version of the dataset's files, as of a `Run`

    @property
    def key(self) -> str:
        noise = noise_as_dict(self.noise)
        recipe = {"format": FORMAT, "dataset": self.dataset, "noise": noise, "seed": self.seed}
        return with_content(key_of(recipe), self.content)


@dataclass(frozen=True)
class Packed:
    """Candidates (n, k) as bits: an eighth of their size, for files and other processes."""

    bits: bytes
    rows: int
    classes: int

    def __post_init__(self) -> None:
        if len(self.bits) != (self.rows * self.classes + 7) // 8:
            msg = f"{len(self.bits)} bytes are not the bits of {self.rows} x {self.classes}"
            raise ValueError(msg)

    @classmethod
    def of(cls, matrix: NDArray[np.bool_]) -> "Packed":
        return cls(np.packbits(matrix).tobytes(), *matrix.shape)

    def matrix(self) -> NDArray[np.bool_]:
        """
        >>> Packed.of(np.eye(3, dtype=bool)).matrix().sum()
        np.int64(3)
        """
        count = self.rows * self.classes
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=count)
        return bits.reshape(self.rows, self.classes).astype(bool)
