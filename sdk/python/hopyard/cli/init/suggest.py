"""Suggests a domain for each option of a script, from its name and default, and the direction of a metric, from its name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final, Literal

from hopyard.cli.init.option_detection import Option

_LENGTH: Final = re.compile(r"^(n_?|num_?|max_?)?(epochs?|iterations?|iters?|max_iter|rounds?)$", re.IGNORECASE)
_NOT_TUNED: Final = re.compile(
    r"seed|worker|thread|interval|every|port$|rank|world|verbose|gpu|device|n_?jobs|steps|folds|classes|limit|timeout"
    r"|version|checkpoint|samples|examples",
    re.IGNORECASE,
)
_LOGARITHMIC: Final = re.compile(
    r"^(.*_)?(lr|learning_?rate|eps|epsilon|wd|weight_?decay|decay|l1|l2|lambda\w*|reg\w*|alpha|c)$", re.IGNORECASE
)
_FRACTION: Final = re.compile(r"drop|momentum|beta|rho|gamma|smooth|ratio|frac|prob|ema|tau", re.IGNORECASE)
_SIZE: Final = re.compile(r"batch|units|hidden|width|dim|channel|filter|embed|size|neurons", re.IGNORECASE)
_LESS: Final = re.compile(
    r"loss|err|rmse|mse|mae|perplexity|ppl|cost|deviation|time|regret|distance|wer|cer", re.IGNORECASE
)
_FRACTIONS: Final = ((0.3, (0.0, 0.5)), (0.8, (0.0, 0.9)), (0.98, (0.5, 0.99)), (1.0, (0.9, 0.9999)))
"""Pairs of a number and the bounds that are suggested for a fraction whose default is at most this number."""
_BEST: Final = ("accuracy", "acc", "f1", "auc", "score", "reward", "error", "loss")
_USUAL: Final[dict[str, Any]] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "learning_rate": {"loguniform": [1e-4, 1e-1]},
    "momentum": {"uniform": [0.5, 0.99]},
    "weight_decay": {"loguniform": [1e-6, 1e-2]},
    "dropout": {"uniform": [0.0, 0.5]},
    "batch_size": {"choice": [32, 64, 128]},
    "hidden": {"choice": [64, 128, 256]},
    "units": {"choice": [64, 128, 256]},
    "channels": {"choice": [8, 16, 32]},
    "layers": {"int": [1, 4]},
    "depth": {"int": [1, 8]},
}


def is_length(name: str) -> bool:
    """Return whether an option of a script, by its name, sets the length of the training, such as `--epochs`.

    Such an option is not searched, since `stop.max_iterations` limits the length.
    """
    return _LENGTH.search(name) is not None


def parameter(name: str, default: object, choices: Iterable[object] = ()) -> Any:
    """Return a domain for an option, as it is written in an experiment file, or None if the option should not be searched.

    Args:
        name: Name of the option.
        default: Its default; None: unknown.
        choices: Its allowed values; empty: unrestricted.
    """
    if is_length(name) or _NOT_TUNED.search(name) or isinstance(default, bool):
        return None
    allowed = list(choices)
    if allowed:
        return {"choice": allowed}
    if isinstance(default, float) and math.isfinite(default):
        return _around(name, default)
    if isinstance(default, int):
        return _around_whole(name, default)
    return _USUAL.get(name.lower()) if default is None else None


def space(options: Iterable[Option], values: dict[str, object]) -> dict[str, Any]:
    """Return a space as it is written in an experiment file: a domain for each hyperparameter of a script that should be searched.

    Args:
        options: The command-line options of the script.
        values: The hyperparameters that the script reads by name, each with its default or None.
    """
    found = {one.name: parameter(one.name, one.default, one.choices) for one in options}
    for name, default in values.items():
        found.setdefault(name, parameter(name, default) or (None if default is not None else {"uniform": [0.0, 1.0]}))
    return {name: written for name, written in found.items() if written is not None}


def metric(names: Iterable[str]) -> tuple[str, Literal["max", "min"]] | None:
    """Return the name that most likely is the objective, with its direction, or None if `names` is empty.

    Words in the names decide, such as "accuracy" before "loss". Among equals, names without "train" come first, then earlier names.
    """
    there = list(names)
    if not there:
        return None

    def rank(name: str) -> tuple[int, bool]:
        low = name.lower()
        place = next((index for index, word in enumerate(_BEST) if word in low), len(_BEST))
        return place, "train" in low

    best = min(there, key=lambda name: (rank(name), there.index(name)))
    return best, "min" if _LESS.search(best) else "max"


def _around(name: str, default: float) -> dict[str, list[float]]:
    if default > 0 and _LOGARITHMIC.search(name):
        return {"loguniform": [_short(default / 10), _short(default * 10)]}
    if 0 <= default < 1 and _FRACTION.search(name):
        low, high = next(bounds for most, bounds in _FRACTIONS if default <= most)
        return {"uniform": [low, high]}
    if default > 0:
        return (
            {"loguniform": [_short(default / 10), _short(default * 10)]}
            if default < 0.05
            else {"uniform": [_short(default / 2), _short(default * 2)]}
        )
    return {"uniform": [0.0, 1.0]} if default == 0 else {"uniform": [_short(default * 2), _short(default / 2)]}


def _around_whole(name: str, default: int) -> dict[str, list[int]] | None:
    if default < 1:
        return None
    if _SIZE.search(name):
        return {"choice": sorted({max(default // 2, 1), default, default * 2})}
    return {"int": [max(default // 2, 1), default * 2]}


def _short(value: float) -> float:
    return float(f"{value:.2g}")
