"""Files from elsewhere, changed at random: each is read, or refused in a sentence.

A case that fails is kept in the folder that the message names. Put it into the corpus once it is
mended: `make test` tries the whole corpus.
"""

import copy
import json
import math
import os
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load as tensors_of
from safetensors.torch import save

from robustpll import load
from robustpll.clean.decisions_file import RowKeys, read_decisions
from robustpll.clean.page import thumbnail, versions
from robustpll.errors import RobustPLLError
from robustpll.estimator.model_file import KEY, SUM, checksum
from robustpll.tables.read import read_table

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference" / "model-0.1.0.pll"
SECONDS = float(os.environ.get("ROBUSTPLL_FUZZ_SECONDS", "60"))  # of all targets together
SEED = int(os.environ.get("ROBUSTPLL_FUZZ_SEED", "0"))
MOST_GIGABYTES = 3  # of the process: torch, pandas and pyarrow take one of these
TOKENS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\x0c", b"\xe2\x80\xa8",
    b"\xc2\x85", b'"', b'""', b",", b";", b"\t", b"|", b"[", b"{", b"NaN", b"-inf", b"1e300",
    b"1e-320", b"99999999999999999999", b"=1+1", b"<script>", b"../", b"\x1f\x8b\x08", b"PAR1",
    b"%!PS-Adobe-3.0",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"), -0.0, "", "x",
    "\0", "\ud800", "a" * 20_000, [], [[]], {}, {"": {}}, [0] * 5_000, "(callable)", "__class__",
)  # fmt: skip


def try_model(path: Path) -> None:
    model = load(path, device="cpu")
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        rows: Any = np.zeros((2, *model.features_.shape))
    else:
        import pandas as pd

        rows = pd.DataFrame({name: [None, None] for name in names}).astype(object)
    assert np.isfinite(model.predict_proba(rows)).all()
    assert len(model.predict(rows)) == 2


def try_table(path: Path) -> None:
    for options in ({"votes": "by "}, {"candidates": "by ann"}, {"indicators": "by "}):
        table = read_table(path, on_bad_rows="skip", **options)
        assert len(table) == len(table.features) == len(table.rows) > 0


def try_picture(path: Path) -> None:
    address = thumbnail(path)
    assert address == "" or address.startswith("data:image/")


def try_decisions(path: Path) -> None:
    classes = np.array(["ant", "b\u2028e\re", "cow"])
    keys = RowKeys(np.arange(2, 9), "key", [f"content {row}" for row in range(7)], [*"abcdefg"])
    decisions = read_decisions([path], keys, classes)
    assert all(0 <= row < 7 and -2 <= label < 3 for row, label in decisions.settled.items())
    for row, said in decisions.again.items():
        assert all(len(cells) == 3 for one in said for cells in versions(one.cells, {})), row
    assert all(decisions.messages())


TARGETS: dict[str, Callable[[Path], None]] = {
    "model": try_model,
    "table": try_table,
    "picture": try_picture,
    "decisions": try_decisions,
}


def corpus(target: str) -> list[Path]:
    return [*sorted((HERE / "corpus" / target).iterdir()), *[REFERENCE] * (target == "model")]


def changed_bytes(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A few changes of some bytes; `other` is where pieces are taken from."""
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        start = rng.randrange(len(content) + 1)
        before, rest = content[:start], content[start:]
        length, place = rng.choice((1, 2, 4, 16, 256)), rng.randrange(len(other) + 1)
        flipped = bytes([rest[0] ^ (1 << rng.randrange(8))]) if rest else b""
        number = rng.choice((0, 1, 2**16, 2**31, 2**32 - 1))
        content = before + rng.choice(
            (
                flipped + rest[1:],
                rest[length:],
                rng.choice(TOKENS) + rest,
                rest[:length] * rng.choice((2, 3, 50)) + rest,
                other[place : place + 256] + rest[length:],
                number.to_bytes(4, rng.choice(("little", "big"))) + rest[4:],
                b"" if rng.random() < 0.3 else rest,
            )
        )
    return content


def changed_json(value: Any, rng: random.Random) -> Any:
    """The same with one to three of its values replaced, removed, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(VALUES))
        (parent, key), (other, name) = rng.choice(places), rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(rng.choice(VALUES)))
        else:
            parent[key] = copy.deepcopy(other[name] if kind == 2 else rng.choice(VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All pairs of a container and a key or index in it; of long lists the ends."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = [*range(len(value))] if len(value) < 20 else [0, 1, len(value) - 1]
    for key in keys:
        yield value, key
        yield from _places(value[key])


def changed_model(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """Changes of bytes are found by the checksum: so the description is changed, too."""
    if rng.random() < 0.3:
        return changed_bytes(content, other, rng)
    length = int.from_bytes(content[:8], "little")
    about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])
    tensors = tensors_of(content)
    if rng.random() < 0.2:
        name = rng.choice(sorted(tensors))
        odd = tensors[name].clone()
        odd.view(-1)[:1] = rng.choice((0, 1, math.nan) if odd.is_floating_point() else (0, 1))
        tensors[name] = rng.choice((odd, odd.view(-1)[:0], odd[..., None]))
    text = json.dumps(changed_json(about, rng))
    return save(tensors, {KEY: text, SUM: checksum(text, tensors)})


def attempt(target: str, path: Path) -> None:
    """Refusals and warnings are sentences; anything else is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            TARGETS[target](path)
        except RobustPLLError as error:
            sentence = str(error)
        else:
            return
    assert 10 < len(sentence) < 20_000


def cases(target: str, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The corpus without end, changed again and again: names with the right endings, and bytes."""
    files = [(path.name, path.read_bytes()) for path in corpus(target)]
    change = changed_model if target == "model" else changed_bytes
    while True:
        name, content = rng.choice(files)
        yield name, change(content, rng.choice(files)[1], rng)


@pytest.mark.parametrize(
    "path",
    [(t, p) for t in TARGETS for p in corpus(t)],
    ids=lambda case: f"{case[0]}-{case[1].name}",
)
def test_the_corpus_is_read_or_refused(path: tuple[str, Path]) -> None:
    attempt(*path)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_changed_files_are_read_or_refused(target: str, tmp_path: Path) -> None:
    """A target has a quarter of the time, but no fewer than 50 cases."""
    end = time.monotonic() + SECONDS / len(TARGETS)
    rng = random.Random(f"{SEED} {target}")
    count = 0
    for name, content in cases(target, rng):
        if count >= 50 and time.monotonic() > end:
            break
        path = tmp_path / name
        path.write_bytes(content)
        try:
            attempt(target, path)
        except Exception as error:
            pytest.fail(f"case {count} of seed {SEED}, kept as {path}: {error!r}")
        count += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert peak < MOST_GIGABYTES, f"{peak:.1f} GiB of memory after {count} cases"
