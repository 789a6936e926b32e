"""The library's own grids, as a TOML file would say them."""

from typing import Any

from robustpll.methods import FURTHER, METHODS, PUBLISHED

REAL_WORLD = ("bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news")
PICTURES = ("mnist", "fmnist", "kmnist", "notmnist")
BESIDES = ("fg-net", "italian")  # real-world sets that the paper does not report
SMALL = ("lost", "msrc-v2", "bird-song")  # on which all methods can be audited

_PAPER: dict[str, Any] = {
    "methods": [each.name for each in PUBLISHED],
    "datasets": [*REAL_WORLD, *PICTURES, *BESIDES],
    "seeds": 5,
    "noise": "instance-dependent",
    "epsilons": [0.1, 0.2, 0.3, 0.4],
    "attacked": [*REAL_WORLD, *BESIDES],
    "ood": [("mnist", "notmnist")],
}
# Dropout's thousand predictions would take a fourth of the quick grid's time.
_QUICKER = {"proden_dropout": {"passes": 100}}
# Pictures tell their classes apart by more of a pixel's range than tables do by a feature's.
_REACH = {SMALL + BESIDES: {}, PICTURES: {"adversary": 0.1}}
GRIDS: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper", **_PAPER},
    "sound": {"preset": "sound", **_PAPER},
    "quick": {
        "preset": "sound",
        "methods": [{"name": name, **_QUICKER.get(name, {})} for name in METHODS],
        "datasets": ["digits", "synthetic"],
        "seeds": 3,
        # of so few rows the usual teacher learns too little: nearly all classes would be candidates
        "noise": {"name": "instance-dependent", "epochs": 20, "learning_rate": 0.3},
        "epsilons": [0.1, 0.2],
        "epochs": 20,
    },
    "audit": {
        "preset": "sound",
        "methods": list(METHODS),
        "datasets": list(SMALL),
        "seeds": 5,
        "audit": {name: [0.01, 0.02, 0.05, 0.1] for name in SMALL},
        "train_rows": True,
    },
    "beyond": {
        "preset": "sound",
        "methods": [
            *("robust_pll", "proden", "proden_ens", "robust_pll_ens"),
            *(
                {"name": each.name, "datasets": list(datasets), **reach}
                for each in FURTHER
                for datasets, reach in _REACH.items()
            ),
        ],
        "datasets": [*SMALL, *PICTURES, *BESIDES],
        "seeds": 5,
        "noise": "instance-dependent",
        "ood": [("mnist", "notmnist")],
        "audit": {**{name: [0.02, 0.05] for name in SMALL}, "mnist": [0.1]},
        "train_rows": True,
    },
}
