"""The published model in plain Python, written from its formulas, as the reference for the compiled one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

NAN = math.nan


def power(base: float, exponent: float) -> float:
    """Return a power: NaN where it is undefined, infinite where it overflows."""
    try:
        return math.pow(base, exponent)
    except ValueError:
        return NAN
    except OverflowError:
        return math.inf


def exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def ln(value: float) -> float:
    return math.log(value) if value > 0 else (-math.inf if value == 0 else NAN)


def over(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.copysign(math.inf, numerator)


FAMILIES: list[tuple[int, Callable[..., float]]] = [
    (3, lambda x, a, b, c: exp(a + b / x + c * ln(x))),
    (2, lambda x, c, a: c - a / ln(x + 1)),
    (4, lambda x, al, be, ka, de: al - (al - be) * exp(-power(ka * x, de))),
    (3, lambda x, c, a, al: c - a * power(x, -al)),
    (4, lambda x, c, a, b, al: c - power(a * x + b, -al)),
    (2, lambda x, a, b: ln(a * ln(x) + b)),
    (4, lambda x, al, be, ka, de: al - over(al - be, 1 + power(ka * x, de))),
    (4, lambda x, a, be, k, de: a - (a - be) * exp(-k * power(x, de))),
    (3, lambda x, th, et, ka: over(th * power(x, et), power(ka, et) + power(x, et))),
    (3, lambda x, a, b, c: over(a, 1 + power(x / exp(b), c))),
    (4, lambda x, c, a, b, al: c - exp(-a * power(x, al) + b)),
]
"""The number of parameters of each family, and its value at x."""


def log_density(
    theta: Sequence[float], kept: Sequence[int], x: Sequence[float], y: Sequence[float], horizon: float
) -> float:
    """Return log prior + log likelihood of section 3 of the model, term by term."""
    parameters: list[Sequence[float]] = []
    at = 0
    for family in kept:
        size = FAMILIES[family][0]
        parameters.append(theta[at : at + size])
        at += size
    sigma, weights = theta[at], theta[at + 1 :]
    assert len(weights) == len(kept)
    if any(weight < 0 for weight in weights):
        return -math.inf
    for family, own in zip(kept, parameters, strict=True):
        value = FAMILIES[family][1]
        end = value(horizon, *own)
        if not math.isfinite(end) or not 0 <= end <= 100:
            return -math.inf
        if value(2.0, *own) > end:
            return -math.inf
    total = 0.0
    n = len(x)
    for i, (here, seen) in enumerate(zip(x, y, strict=True), start=1):
        mean = sum(
            weight / sum(weights) * FAMILIES[family][1](here, *own)
            for weight, family, own in zip(weights, kept, parameters, strict=True)
        )
        recency = 10 ** ((i - 1) / n)
        if sigma <= 0:
            return -math.inf
        total += recency * (-((seen - mean) ** 2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi)))
    return -math.inf if math.isnan(total) else total
