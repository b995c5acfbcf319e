"""Tests of what Optuna's samplers receive, and of what they propose."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.generator import Generator, GeneratorParameterError, ObjectiveMetric, Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import Choice, Configuration, Constant, IntUniform, LogInt, LogUniform, Space, Uniform, When

pytest.importorskip("optuna", reason="the extra optuna is not installed: pip install './hopyard[optuna]'")

from optuna.trial import FrozenTrial, TrialState

from hopyard_hpgen.generators.optuna_samplers import CmaEsGenerator, GpGenerator, Nsga2Generator, TpeGenerator
from hopyard_hpgen.generators.optuna_study import OptunaGenerator
from hopyard_hpgen.generators.random import RandomGenerator

SPACE = Space(
    {
        "x": Uniform(-5.0, 5.0),
        "rate": LogUniform(1e-4, 1.0),
        "n": IntUniform(2, 10, step=4),
        "width": LogInt(1, 64),
        "kind": Choice(("a", [1, 2])),
        "extra": When(Uniform(0.0, 1.0, step=0.25), {"kind": "a"}),
        "fixed": Constant(7),
    }
)


def trials(generator: OptunaGenerator) -> list[FrozenTrial]:
    return generator._study.get_trials(deepcopy=False)


def made(generator: OptunaGenerator, *jobs: str) -> list[Configuration]:
    found = [generator.create(job, ordinal) for ordinal, job in enumerate(jobs)]
    return [configuration for configuration in found if configuration is not None]


def test_ends_are_told_as_what_they_are() -> None:
    generator = TpeGenerator(SPACE, 1)
    generator.metric = ObjectiveMetric("accuracy", "max")
    made(generator, *"abcdefg")
    # No finite value, and no earlier job to take the worst value from.
    generator.report_final("f", Result({}))
    generator.report_final("a", Result({"accuracy": 0.5}, position=9))
    generator.report("b", 1, {"accuracy": 0.25})
    generator.report("b", 2, {"accuracy": math.nan})
    generator.report_final("b", Result({"accuracy": 0.25}, JobState.TERMINATED, 1))
    generator.report_final("c", Result({"accuracy": 0.75}, JobState.TERMINATED, 4))
    generator.report_final("d", Result({"accuracy": 0.9}, JobState.FAILED, 4))
    generator.report_final("e", Result({"accuracy": math.inf}))
    generator.report_final("g", Result({}, JobState.TERMINATED))
    found = [(trial.state, trial.value, trial.intermediate_values) for trial in trials(generator)]
    assert found == [
        (TrialState.COMPLETE, -0.5, {}),
        (TrialState.PRUNED, math.inf, {1: -0.25, 2: math.inf}),
        (TrialState.PRUNED, -0.75, {4: -0.75}),
        (TrialState.FAIL, None, {}),
        # The worst value of the jobs that could be compared.
        (TrialState.COMPLETE, -0.25, {}),
        (TrialState.FAIL, None, {}),
        (TrialState.PRUNED, None, {}),
    ]


def test_jobs_of_others_are_learnt_from_if_they_are_in_the_space() -> None:
    generator = TpeGenerator(SPACE, 1)
    inside = SPACE.sample_at(5, 5)
    generator.report_final("made", Result({"metric": 0.5}, hyperparameters=inside))
    generator.report_final("forked", Result({"metric": 0.5}, hyperparameters={**inside, "x": 99.0}))
    generator.report_final("never-made", Result({}, JobState.FAILED))
    (trial,) = trials(generator)
    assert (trial.state, trial.value) == (TrialState.COMPLETE, -0.5)
    assert generator._values(inside) == trial.params


def test_a_sampler_sees_places_and_the_job_gets_values() -> None:
    generator = TpeGenerator(SPACE, 3)
    for configuration in made(generator, *"abcdefgh"):
        values = generator._values(configuration)
        assert SPACE.contains(configuration)
        assert set(values) == set(SPACE.flat(configuration)) - {"fixed"}
        assert 0 <= values["x"] <= 1
        assert configuration["n"] == 2 + 4 * values["n"]
        assert configuration["kind"] == ("a", [1, 2])[values["kind"]]


def test_a_long_study_is_begun_anew_with_the_best_and_the_newest() -> None:
    generator = TpeGenerator(Space({"x": Uniform(0.0, 1.0)}), 1, n_startup_trials=100, history=20)
    made(generator, *map(str, range(45)))
    generator.report("43", 1, {"metric": 0.1})
    for job in range(40):
        generator.report_final(str(job), Result({"metric": 1.0 if job in (3, 7) else job / 100}))
    kept = trials(generator)
    assert [trial.state for trial in kept] == [TrialState.RUNNING] * 5 + [TrialState.COMPLETE] * 20
    assert kept[3].intermediate_values == {1: -0.1}
    assert sorted(trial.value or 0.0 for trial in kept[5:])[:2] == [-1.0, -1.0]
    generator.report_final("43", Result({"metric": 0.5}))
    assert trials(generator)[3].value == -0.5


def test_a_configuration_is_not_proposed_twice() -> None:
    space = Space({"a": Choice((1, 2, 3)), "b": Choice((1, 2))})
    generator = TpeGenerator(space, 1, n_startup_trials=1)
    generator.report_final("other", Result({"metric": 1.0}, hyperparameters={"a": 2, "b": 2}))
    found = list[Configuration]()
    for ordinal in range(8):
        configuration = generator.create(str(ordinal), ordinal)
        if configuration is not None:
            found.append(configuration)
            generator.report_final(str(ordinal), Result({"metric": 0.0}))
    assert len(found) == 5
    assert {"a": 2, "b": 2} not in found


def bowl(configuration: Mapping[str, object]) -> float:
    x, y = float(configuration["x"]), float(configuration["y"])  # type: ignore[arg-type]  # numbers, by the space
    return (x - 2.0) ** 2 + (y + 1.0) ** 2


def best(generator: Generator, jobs: int) -> float:
    """Return the least loss on a quadratic function that a search finds, with four jobs in progress at a time."""
    generator.metric = ObjectiveMetric("loss", "min")
    found = list[tuple[str, float]]()
    for ordinal in range(jobs):
        configuration = generator.create(str(ordinal), ordinal)
        assert configuration is not None
        found.append((str(ordinal), bowl(configuration)))
        if ordinal >= 3:
            job, loss = found[ordinal - 3]
            generator.report_final(job, Result({"loss": loss}))
    return min(loss for _, loss in found)


PLANE = Space({"x": Uniform(-5.0, 5.0), "y": Uniform(-5.0, 5.0)})


@pytest.mark.parametrize("kind", [TpeGenerator, CmaEsGenerator])
def test_samplers_find_a_minimum_sooner_than_chance(kind: type[OptunaGenerator]) -> None:
    learnt = [best(kind(PLANE, seed), 60) for seed in range(3)]
    drawn = [best(RandomGenerator(PLANE, seed), 60) for seed in range(3)]
    assert max(learnt) < min(drawn)


def test_a_population_comes_nearer_with_its_generations() -> None:
    assert best(Nsga2Generator(PLANE, 1, population_size=10), 150) < best(RandomGenerator(PLANE, 1), 150)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (TpeGenerator, {"n_startup_trials": -1}, "n_startup_trials as a whole number >= 0, found -1"),
        (TpeGenerator, {"n_ei_candidates": 2.5}, "n_ei_candidates as a whole number >= 1, found 2.5"),
        (TpeGenerator, {"multivariate": "yes"}, 'multivariate as true or false, found "yes"'),
        (TpeGenerator, {"history": 3}, "history as a whole number >= 20, found 3"),
        (CmaEsGenerator, {"sigma0": 0}, "sigma0 above 0, found 0"),
        (CmaEsGenerator, {"sigma0": 2}, "sigma0 as a number from 0 to 1, found 2"),
        (CmaEsGenerator, {"popsize": 1}, "popsize as a whole number >= 5, found 1"),
        (Nsga2Generator, {"crossover_prob": True}, "crossover_prob as a number from 0 to 1, found true"),
        (Nsga2Generator, {"population_size": 1}, "population_size as a whole number >= 2, found 1"),
        (
            TpeGenerator,
            {"gamma": 3},
            "TpeGenerator has no parameter gamma; it takes: constant_liar, history, multivariate, n_ei_candidates, "
            "n_startup_trials",
        ),
    ],
)
def test_wrong_parameters_are_refused(kind: type[OptunaGenerator], parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(GeneratorParameterError) as caught:
        kind(PLANE, 1, **parameters)
    assert message in str(caught.value)


def test_what_they_read() -> None:
    assert TpeGenerator(PLANE, 1).reads == "reports"
    assert CmaEsGenerator(PLANE, 1).reads == "finals"


def test_every_process_proposes_the_same() -> None:
    program = (
        "from tests.unit.hpgen.test_optuna import *\n"
        "generator, found = TpeGenerator(SPACE, 1, n_startup_trials=2), []\n"
        "for n in range(12):\n"
        "    found.append(generator.create(str(n), n))\n"
        "    generator.report_final(str(n), Result({'metric': found[-1]['x']}))\n"
        "print(found)"
    )
    out = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(out) == 1
    assert "extra" in out.pop()


def test_without_optuna_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from hopyard._common.plugins import GENERATORS, PluginError, load_plugin

    for module in [name for name in sys.modules if name.startswith(("optuna", "hopyard_hpgen.generators.optuna"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PluginError, match=r"tpe, gp, cmaes and nsga2 need Optuna: pip install .*\[optuna\]'"):
        load_plugin(GENERATORS, "hopyard_hpgen.generators.optuna_samplers:TpeGenerator")


def test_gp_computes_with_one_thread_and_leaves_the_number_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install './hopyard[torch]'")
    before, seen = torch.get_num_threads(), []
    real = OptunaGenerator.create

    def create(self: OptunaGenerator, job: str, ordinal: int) -> Configuration | None:
        seen.append(torch.get_num_threads())
        return real(self, job, ordinal)

    monkeypatch.setattr(OptunaGenerator, "create", create)
    torch.set_num_threads(2)
    try:
        made(GpGenerator(SPACE, 1), "a")
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
