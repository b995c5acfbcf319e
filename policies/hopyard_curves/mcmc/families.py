"""The eleven families of parametric learning curves.

The order of families and of each family's parameters is their order in the model's parameter vector theta
(`hopyard_curves.mcmc.posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Family:
    """A family of parametric curves f(x), where x >= 1 is the position as a count of reports (`reports.abscissae`).

    Attributes:
        name: The name of the family.
        formula: The formula that `numba_kernels.add` computes, in x and the parameters; ln is the natural logarithm.
        start: The initial value of each parameter by name, in the order of the parameters in theta.
    """

    name: str
    formula: str
    start: dict[str, float]


FAMILIES: Final = (
    Family("vapor_pressure", "exp(a + b/x + c ln x)", {"a": -0.622028, "b": -0.470050, "c": 0.042322}),
    Family("ilog2", "c - a / ln(x + 1)", {"c": 0.78, "a": 0.43}),
    Family("weibull", "al - (al - be) exp(-(ka x)^de)", {"al": 0.7, "be": 0.1, "ka": 0.01, "de": 1.0}),
    Family("pow3", "c - a x^(-al)", {"c": 0.84, "a": 0.52, "al": 0.01}),
    Family("pow4", "c - (a x + b)^(-al)", {"c": 0.8, "a": 200.0, "b": 0.0, "al": 0.1}),
    Family("log_log_linear", "ln(a ln x + b)", {"a": 1.0, "b": 1.0}),
    Family("mmf", "al - (al - be) / (1 + (ka x)^de)", {"al": 0.7, "be": 0.1, "ka": 0.01, "de": 5.0}),
    Family("janoschek", "a - (a - be) exp(-k x^de)", {"a": 0.73, "be": 0.07, "k": 0.355, "de": 0.46}),
    Family("hill3", "th x^et / (ka^et + x^et)", {"th": 0.772320, "et": 0.586449, "ka": 2.460843}),
    Family("log_power", "a / (1 + (x / e^b)^c)", {"a": 0.77, "b": 2.98, "c": -0.51}),
    Family("exp4", "c - exp(-a x^al + b)", {"c": 0.7, "a": 0.8, "b": -0.8, "al": 0.3}),
)
