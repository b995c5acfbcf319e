"""Draws random searches."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fuzzing.watching import Deed, Kind
from fuzzing.workload import Configuration, Program, Task
from hopyard.space import Space
from hopyard_simulator import Costs, Faults, Fleet, JoiningExperiment, Partitions

SPACE: Final = Space.from_dict({"lr": {"loguniform": [1e-4, 1.0]}, "batch": {"choice": [16, 32, 64]}})
Drawn = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A search to simulate, possibly followed by a later search that is told what this one has trained.

    Attributes:
        name: The seed from which the case was drawn.
        policy: Name of the policy.
        parameters: Parameters of the policy.
        task: The configurations and the program that trains them.
        fleet: The slots.
        costs: The costs of starting, saving and other operations.
        faults: The faults that occur.
        terms: Settings of the experiment that `simulate` takes together with the policy's parameters.
        settings: Further settings of the experiment, by their names in the engine.
        seed: Seed of the random numbers of the policy and the faults.
        target: As in `simulate`; so are `max_time`, `data`, `group`, `from_scratch` and `space`.
        deeds: What users and clients do during the search.
        later: Configurations of the later search; empty: none.
    """

    name: str
    policy: str
    parameters: Drawn
    task: Task
    fleet: Fleet
    costs: Costs
    faults: Faults
    terms: Drawn
    settings: Drawn
    seed: int
    target: float | None = None
    max_time: float | None = None
    data: Partitions | None = None
    group: Sequence[JoiningExperiment] = ()
    deeds: tuple[Deed, ...] = ()
    later: Sequence[Configuration] = ()
    from_scratch: bool = False
    space: Space | None = None

    @property
    def undisturbed(self) -> bool:
        """Whether there are no faults, groups, deeds or quotas, so that nothing may be trained twice."""
        no_faults = not (self.faults.drop or self.faults.node_failures)
        return no_faults and not self.group and not self.deeds and "snapshot_quota" not in self.terms


def _halving(rng: random.Random, top: int) -> Drawn:
    eta = rng.choice((2, 2, 3, 4))
    found: Drawn = {"eta": eta}
    if rng.random() < 0.6:
        found["r"] = rng.randint(1, max(1, top // 2))
    return found


def _boundary(rng: random.Random, top: int) -> Drawn:
    return {"evaluation_boundary": rng.randint(1, max(1, top // 2))}


def _asha(rng: random.Random, top: int) -> Drawn:
    return {**_halving(rng, top), "infinite": rng.random() < 0.1}


def _sha(rng: random.Random, top: int) -> Drawn:
    return {**_halving(rng, top), "width": rng.choice((None, 2, 3, 5))}


def _median(rng: random.Random, top: int) -> Drawn:
    return {**_boundary(rng, top), "least_jobs": rng.randint(1, 3)}


def _bandit(rng: random.Random, top: int) -> Drawn:
    return {**_boundary(rng, top), "epsilon": rng.choice((0.1, 0.5))}


def _pbt(rng: random.Random, top: int) -> Drawn:
    return {
        "population": rng.randint(2, 5),
        "interval": rng.randint(1, max(1, top // 2)),
        "truncation": rng.choice((0.2, 0.5)),
        "frozen": rng.choice(([], ["batch"])),
    }


def _default(rng: random.Random, top: int) -> Drawn:
    return {"barrier": True, "epoch": rng.randint(1, top)} if rng.random() < 0.3 else {}


def _pop(rng: random.Random, top: int) -> Drawn:
    return _boundary(rng, top) if rng.random() < 0.7 else {}


def _pop_plus(rng: random.Random, top: int) -> Drawn:
    return {"first_look": rng.randint(1, top)} if rng.random() < 0.7 else {}


ALONE: Final[Mapping[str, Callable[[random.Random, int], Drawn]]] = {
    "default": _default,
    "bandit": _bandit,
    "earlyterm": _boundary,
    "median": _median,
    "pop": _pop,
    "pop_plus": _pop_plus,
    "sha": _sha,
    "asha": _asha,
    "hyperband": _halving,
    "async_hyperband": _halving,
    "bohb": _halving,
    "pbt": _pbt,
}
POLICIES: Final = (*ALONE, "stage_tree", "mop")
_ELASTIC: Final = ("default", "bandit", "median", "sha", "asha", "hyperband", "async_hyperband")


def _tuner(rng: random.Random, top: int) -> Drawn:
    names = [name for name in ALONE if name not in ("pop", "pop_plus", "earlyterm", "bohb")]
    name = rng.choice(names)
    return {"name": name, **ALONE[name](rng, top)}


def _stage_tree(rng: random.Random, top: int) -> Drawn:
    found: Drawn = {}
    if rng.random() < 0.75:
        found["tuner"] = _tuner(rng, top)
    if rng.random() < 0.15:
        found["share"] = False
    if rng.random() < 0.3:
        found["width"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        found["save_every"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        found["train_best_further"] = rng.randint(1, 6)
    return found


def _mop(rng: random.Random, top: int) -> Drawn:
    found: Drawn = {}
    if rng.random() < 0.6:
        found["tuner"] = _tuner(rng, top)
    if rng.random() < 0.5:
        found["barrier"] = rng.random() < 0.5
    if rng.random() < 0.5:
        found["configurations"] = rng.randint(1, 5)
    if rng.random() < 0.5:
        found["gang_below"] = rng.choice((0, 0.5, 1, 1))
    if rng.random() < 0.2:
        found["pilot"] = True
    if rng.random() < 0.1:
        found["scheduler"] = rng.choice(("milp", "random", "online"))
    return found


def _elastic(rng: random.Random) -> Drawn:
    profile = {size: 8.0 / size**0.9 for size in range(1, rng.randint(2, 4) + 1)}
    chosen: Drawn = {"pause": rng.choice((0, 1.0))}
    if rng.random() < 0.7:
        chosen["profile"] = profile
    return chosen


def draw(seed: str, policies: Sequence[str] = POLICIES) -> Case:
    """Return the case of a seed, with one of the given policies."""
    rng = random.Random(seed)
    policy = rng.choice(list(policies))
    top = rng.choice((1, 3, 4, 8, 8, 8, 9, 16))
    data = None
    if policy == "mop":
        top = rng.choice((1, 2, 3, 5))
        data = Partitions(rng.randint(1, 4), rng.choice((0, 0, 1, 2)))
    parameters = (
        _mop(rng, top) if data else _stage_tree(rng, top) if policy == "stage_tree" else ALONE[policy](rng, top)
    )
    copies = "pbt" in (policy, (parameters.get("tuner") or {}).get("name"))
    if policy in _ELASTIC and rng.random() < 0.2 and not parameters.get("barrier"):
        parameters["elastic"] = _elastic(rng)
    configurations = _configurations(rng, copies, top)
    fleet = Fleet(rng.randint(1, 6), rng.randint(1, 3), [rng.choice((0.5, 1.0, 2.0)) for _ in range(rng.randint(1, 3))])
    if data and rng.random() < 0.3:
        data = Partitions(data.train, data.eval, rng.randint(1, len(fleet.nodes())))
    faults = _faults(rng) if rng.random() < 0.6 else Faults()
    return Case(
        name=seed,
        policy=policy,
        parameters=parameters,
        task=Task(configurations, top, _program(rng, top, copies), rng.choice((0.25, 1.0, 3.0))),
        fleet=fleet,
        costs=Costs(*[rng.choice((0.0, 0.0, 0.1, 0.75, 3.0)) for _ in range(8)]) if rng.random() < 0.7 else Costs(),
        faults=faults,
        terms=_terms(rng),
        settings={"ship_every": rng.choice((0, 1, 3))} if rng.random() < 0.3 else {},
        seed=rng.randrange(1000),
        target=rng.choice((None, None, None, 0.9, 0.99)),
        # With faults, a long unit may never be completed, so the time of the search is limited.
        max_time=rng.choice((None, None, None, None, 5.0, 40.0))
        or (300.0 if faults.drop or faults.node_failures else None),
        data=data,
        group=_group(rng, copies, top) if rng.random() < 0.25 else (),
        deeds=_deeds(rng, policy, top, copies) if rng.random() < 0.4 else (),
        later=_configurations(rng, copies, top) if policy == "stage_tree" and rng.random() < 0.4 else (),
        from_scratch=rng.random() < 0.1,
        space=SPACE if copies else None,
    )


def _configurations(rng: random.Random, copies: bool, top: int) -> list[Configuration]:
    """Return random configurations with many equal values.

    With `copies`, they are from SPACE and have no sequences, so that PBT can copy and change them.
    """
    count = rng.randint(1, 9)
    if copies:
        return [SPACE.sample(rng) for _ in range(count)]
    found: list[Configuration] = []
    for _ in range(count):
        marks = sorted(rng.sample(range(1, top), rng.randint(1, min(3, top - 1)))) if top > 1 else []
        values = [rng.choice((0.1, 0.2, 0.4)) for _ in range(len(marks) + 1)]
        rate = {"sequence": {"multi_step": {"milestones": marks, "values": values}}} if marks else values[0]
        found.append({"lr": rate, "batch": rng.choice((32, 64)), "decay": rng.choice((0, 0, 0, 1, 2))})
    return found


def _program(rng: random.Random, top: int, copies: bool) -> Program:
    every = rng.choice((1, 1, 2, 3, 5, 7))
    end = top + rng.choice((0, 0, 0, 0, 2, 5))
    if rng.random() < 0.3:
        positions = sorted(rng.sample(range(1, end + 1), rng.randint(1, end)))
    else:
        positions = list(range(every, end + 1, every))
    if not positions or rng.random() < 0.6:
        positions = sorted({*positions, end})
    early = rng.choice((0, 0, 0, 3, 8)) if not copies else 0
    return Program(tuple(positions), early, rng.choice((0, 0, 10, 100)))


def _faults(rng: random.Random) -> Faults:
    return Faults(
        straggling=rng.choice((0.0, 1.0)),
        drop=rng.choice((0.0, 0.02, 0.1)),
        node_failures=rng.choice((0.0, 0.0, 0.02, 0.1)),
        downtime=rng.choice((0.0, 1.0, 10.0)),
    )


def _terms(rng: random.Random) -> Drawn:
    choices: Drawn = {
        "snapshot_every": rng.choice((0, 2, 3, 5)),
        "keep_latest": rng.choice((1, 2, 3)),
        "keep_best": rng.choice((0, 1, 2)),
        "snapshot_quota": rng.choice((0, 1, 3, 8)),
        "concurrency": rng.choice((1, 2, 3)),
        "target_over": 1,
        "kill_after": rng.choice((0.5, 30.0)),
    }
    chances = {"snapshot_every": 0.4, "keep_latest": 0.2, "keep_best": 0.2, "snapshot_quota": 0.15}
    found = {name: value for name, value in choices.items() if rng.random() < chances.get(name, 0.15)}
    return {**found, "max_losses": 10_000}


def _group(rng: random.Random, copies: bool, top: int) -> list[JoiningExperiment]:
    return [
        JoiningExperiment(
            _configurations(rng, copies, top),
            at=rng.choice((0.0, 0.5, 3.0, 20.0)),
            stopped=rng.choice((None, None, 25.0, 60.0)),
            alike=rng.random() < 0.8,
            max_position=rng.choice((None, None, rng.randint(1, top))),
            target=rng.choice((None, None, 0.95)),
        )
        for _ in range(rng.randint(1, 2))
    ]


def _deeds(rng: random.Random, policy: str, top: int, copies: bool) -> tuple[Deed, ...]:
    kinds: list[Kind] = ["extend", "more jobs", "concurrency", "stop", "room", "hold", "terminate"]
    if policy == "stage_tree":
        kinds += ["request", "request"]
    found = []
    for _ in range(rng.randint(1, 4)):
        kind, at = rng.choice(kinds), rng.choice((0.0, 1.0, 4.0, 10.0, 60.0)) + round(rng.random(), 3)
        number = rng.randint(1, 5)
        given = dict(_configurations(rng, copies, top)[0]) if kind == "request" else None
        found.append(Deed(at, kind, number, rng.choice((0.5, 5.0)), given))
    return tuple(sorted(found, key=lambda deed: deed.at))
