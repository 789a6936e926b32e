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
# Pictures tell their classes apart by more of a pixel's range than tables do by a feature's. Chosen
# by benchmarks/grids/choose-*.toml; more epochs were not tried, as 60 of so many rows take long.
_PICTURED: dict[str, Any] = {"adversary": 0.1, "kl_ceiling": 3.0, "epochs": 60}
_PUBLISHED = {"kl_ceiling": 1.0, "kl_per_class": False, "kl_scale_large_k": 0.0005}
_PLAIN: dict[str, dict[str, Any]] = {  # what else RobustPll might be by default
    "softplus": {"evidence": "softplus"},
    "exp 3": {"evidence": "exp", "kl_ceiling": 3.0},
    "averaged": {"averaged": 0.5},
}
_LOWER = [0.03, 0.1, 0.3, 1.0, 4.0]  # ceilings of members; see benchmarks/grids/choose-pictures-*
_AUDITED = {name: [0.02, 0.05] for name in SMALL}
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
        "audit": _AUDITED,
        "train_rows": True,
    },
    "beyond": {
        "preset": "sound",
        "methods": [
            {"name": "proden", "datasets": list(SMALL + BESIDES + PICTURES[:1])},
            {"name": "robust_pll", "label": "RobustPll ceiling 1", **_PUBLISHED}
            | {"datasets": list(SMALL + BESIDES + PICTURES[:1])},
            {"name": "robust_pll", "datasets": list(SMALL + BESIDES)},
            *(
                {"name": "robust_pll", "label": f"RobustPll {label}", **changed}
                | {"datasets": list(SMALL + BESIDES)}
                for label, changed in _PLAIN.items()
            ),
            {"name": "robust_pll_ens", "datasets": ["mnist"]},
            *(
                {"name": "robust_pll_ens", "label": f"RobustPll+Ens {evidence} 0.03 to 4"}
                | {"evidence": evidence, "kl_ceiling": _LOWER, "datasets": ["mnist"]}
                for evidence in ("relu", "softplus")
            ),
            {"name": "robust_pll_at", "datasets": list(SMALL + BESIDES)},
            {"name": "robust_pll_at_ens", "datasets": list(SMALL)},
            *({"name": e.name, "datasets": list(PICTURES), **_PICTURED} for e in FURTHER),
            *(
                {"name": each.name, "label": f"{each.title} 5 steps"}
                | {"attack_steps": 5, "datasets": list(SMALL)}
                for each in FURTHER
            ),
        ],
        "datasets": [*SMALL, *PICTURES, *BESIDES],
        "seeds": 5,
        "noise": "instance-dependent",
        "ood": [("mnist", "notmnist")],
        "audit": {**_AUDITED, "mnist": [0.1]},
        "train_rows": True,
    },
}
