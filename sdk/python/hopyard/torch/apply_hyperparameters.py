"""Applies changed hyperparameters to an optimizer and its learning-rate schedulers."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler


def change_optimizer(optimizer: torch.optim.Optimizer, name: str, old: object, new: object) -> bool:
    """Change the option `name` in the optimizer's parameter groups. Return False if it has no such option, else True.

    A learning rate is scaled by the ratio of the new value to the old one, so factors from a schedule or a group are
    kept. Any other option changes only in the groups that have the old value; a group with a different value (such as
    no weight decay for biases) keeps it. If there is no option `momentum`, the name means the first of Adam's `betas`.
    """
    if name == "lr":
        for group in optimizer.param_groups:
            for key in ("lr", "initial_lr"):
                if key in group:
                    group[key] = _scaled(group[key], old, new)
        return True
    found = False
    for group in optimizer.param_groups:
        if name in group:
            found = True
            if _same(group[name], old):
                group[name] = tuple(new) if isinstance(group[name], tuple) and isinstance(new, list) else new
        elif name == "momentum" and "betas" in group:
            found = True
            if _same(group["betas"][0], old):
                group["betas"] = (new, *group["betas"][1:])
    return found


def change_scheduler(scheduler: LRScheduler, name: str, old: object, new: object) -> bool:
    """Set the scheduler's numeric attribute `name` (such as `gamma` or `T_max`) to `new` if its value is `old`.

    The schedulers inside a scheduler are changed in the same way. For `lr`, their base rates are multiplied by `new / old` instead.
    Return whether anything was changed: False if no scheduler has such an attribute with the value `old`.
    """
    found = False
    inner: list[LRScheduler] = getattr(scheduler, "_schedulers", [])
    for one in [scheduler, *inner]:
        if name == "lr":
            one.base_lrs = [_scaled(rate, old, new) for rate in one.base_lrs]
            found = True
            continue
        value = vars(one).get(name)
        if not name.startswith("_") and isinstance(value, int | float) and _same(value, old):
            setattr(one, name, new)
            found = True
    return found


def _scaled(rate: Any, old: Any, new: Any) -> Any:
    """Return `rate` multiplied by `new / old`; if `rate` equals `old` or `old` is 0, exactly `new`. Tensors are changed in place."""
    if isinstance(rate, torch.Tensor):
        return rate.fill_(_scaled(rate.item(), old, new))
    if rate == old or not old:
        return new
    return rate * (new / old)


def _same(value: object, old: object) -> bool:
    if isinstance(value, tuple) and isinstance(old, list):
        return list(value) == old
    return bool(value == old)
