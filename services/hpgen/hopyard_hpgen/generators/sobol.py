"""Sobol points: a search that fills the space more evenly than chance."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from scipy.stats import qmc

from hopyard.generator import Generator
from hopyard.space import Configuration, Constant, Problem, Space, SpaceError
from hopyard_hpgen.generators.deduplication import Unseen, need_units

_BITS: Final = 30


class SobolGenerator(Generator):
    """The points of a scrambled Sobol sequence: any first 2^n of them spread evenly, whatever the number of parameters.

    Each parameter but the constants is a dimension; where a condition leaves it out, its coordinate is not used. Points
    that repeat a configuration (few values) or do not fit the constraints are left out. The sequence is scrambled by the
    seed and each parameter's name as Owen does it (every bit is flipped or not by a hash of the bits before it), which
    keeps the evenness, moves no point to a corner, and is the same in every process and version.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        """Takes no parameters of its own.

        Raises:
            SpaceError: more dimensions than the sequence is known for.
            ConstraintsError: hardly any configuration fits the constraints.
        """
        super().__init__(space, seed, **parameters)
        need_units(space, "sobol")
        names = [name for name, parameter in space.items() if not isinstance(parameter, Constant)]
        if len(names) > qmc.Sobol.MAXDIM:
            raise SpaceError([Problem((), f"sobol takes at most {qmc.Sobol.MAXDIM} parameters, found {len(names)}")])
        self._keys = {name: hashlib.sha256(f"sobol:{seed}:{name}".encode()).digest() for name in names}
        self._points = qmc.Sobol(len(names), scramble=False, bits=_BITS) if names else None
        self._unseen = Unseen(space, seed)
        space.sample_at(seed, 0)

    @property
    def size(self) -> int | None:
        """The size of the space."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """The next point that is new and fits; None when there is no new one."""
        return self._unseen.first(ordinal, lambda _: self.space.fitting(lambda _: self._next()))

    def _next(self) -> Configuration:
        point = self._points.random(1)[0] if self._points is not None else ()
        units = {
            name: scrambled(int(at * (1 << _BITS)), key)
            for (name, key), at in zip(self._keys.items(), point, strict=True)
        }
        return self.space.build(lambda name, parameter: parameter.from_unit(units.get(name, 0.0)))


def scrambled(coordinate: int, key: bytes) -> float:
    """A coordinate (0 <= coordinate < 2^30) scrambled by `key`, in (0, 1): the middle of its cell."""
    found = 0
    for place in range(_BITS):
        prefix = coordinate >> (_BITS - place)
        flip = hashlib.blake2b(f"{place}:{prefix}".encode(), digest_size=1, key=key).digest()[0] & 1
        found = found << 1 | (coordinate >> (_BITS - 1 - place) & 1) ^ flip
    return (found + 0.5) / (1 << _BITS)
