"""A generator that proposes the points of a Sobol sequence, which cover the space more evenly than random points."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from scipy.stats import qmc

from hopyard.generator import Generator
from hopyard.space import Configuration, Constant, Problem, Space, SpaceError
from hopyard_hpgen.generators.deduplication import UnproposedConfigurations, need_units

_BITS: Final = 30


class SobolGenerator(Generator):
    """Proposes the points of a scrambled Sobol sequence: the first 2^n points are evenly spread for any number of parameters.

    Each parameter except constants is a dimension. If a condition disables a parameter, its coordinate is unused. Points that repeat a
    configuration or violate the constraints are skipped. The points are randomized by Owen scrambling, in which each bit of a
    coordinate is flipped or not by a hash of the seed, the parameter's name and the higher bits. This preserves the even spread, and is
    the same in every process and version.

    Args:
        space: The search space.
        seed: Seed of the scrambling.
        **parameters: Any parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is given.
        SpaceError: The space has more dimensions than the sequence supports, or has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        need_units(space, "sobol")
        names = [name for name, parameter in space.items() if not isinstance(parameter, Constant)]
        if len(names) > qmc.Sobol.MAXDIM:
            raise SpaceError([Problem((), f"sobol takes at most {qmc.Sobol.MAXDIM} parameters, found {len(names)}")])
        self._keys = {name: hashlib.sha256(f"sobol:{seed}:{name}".encode()).digest() for name in names}
        self._points = qmc.Sobol(len(names), scramble=False, bits=_BITS) if names else None
        self._unseen = UnproposedConfigurations(space, seed)
        space.sample_at(seed, 0)

    @property
    def size(self) -> int | None:
        """The number of configurations of the space; None: infinite or, with constraints, unknown."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return the configuration of the next point that is new and satisfies the constraints; None: none was found.

        `job` is unused. `ordinal` is the number of the proposal, from 0, for the random choice among the remaining
        configurations of a small space, which are listed when the next points give no new one.
        """
        return self._unseen.first(ordinal, lambda _: self.space.fitting(lambda _: self._next()))

    def _next(self) -> Configuration:
        point = self._points.random(1)[0] if self._points is not None else ()
        units = {
            name: scrambled(int(at * (1 << _BITS)), key)
            for (name, key), at in zip(self._keys.items(), point, strict=True)
        }
        return self.space.build(lambda name, parameter: parameter.from_unit(units.get(name, 0.0)))


def scrambled(coordinate: int, key: bytes) -> float:
    """Return a coordinate of a Sobol point after Owen scrambling (see `SobolGenerator`).

    Args:
        coordinate: The coordinate as an integer from 0 to 2^30 - 1: the index of a cell of the unit interval.
        key: Hash of the seed and the parameter's name, which determines the scrambling.

    Returns:
        The middle of the scrambled cell, in (0, 1).
    """
    found = 0
    for place in range(_BITS):
        prefix = coordinate >> (_BITS - place)
        flip = hashlib.blake2b(f"{place}:{prefix}".encode(), digest_size=1, key=key).digest()[0] & 1
        found = found << 1 | (coordinate >> (_BITS - 1 - place) & 1) ^ flip
    return (found + 0.5) / (1 << _BITS)
