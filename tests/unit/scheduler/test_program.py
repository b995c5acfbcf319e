"""Tests of the program that agents receive for an experiment, and of the review of its terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hopyard.cli.commands.experiments.preflight import terms_of
from hopyard.errors import InvalidInput
from hopyard.policy import ENDLESS, Cluster, ExperimentView, Policy, capabilities_of
from hopyard.spec import canonical_json, load_spec, spec_from_json
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_engine.policy_host.factory import need_fit, new_policy, review, unseen_metric
from hopyard_engine.policy_host.view import terms_view
from hopyard_engine.settings import settings_of
from hopyard_scheduler.experiments.program import ExperimentProgram, need_agreement, program_of

pytestmark = pytest.mark.quick

FILE = """\
name: e
metric: {{name: acc, mode: max}}
space: {{lr: {{uniform: [0, 1]}}}}
stop: {{jobs: 3}}
{program}
"""


def program(text: str, interpreter: str = "") -> ExperimentProgram:
    return ExperimentProgram(load_spec(FILE.format(program=text)), "b" * 64, interpreter)


def test_a_specification_is_parsed_once() -> None:
    text = canonical_json(load_spec(FILE.format(program="command: [a]")))
    payload = {"spec": text, "bundle": "", "interpreter": "", "request": "1"}
    assert program_of(payload) is program_of({**payload, "request": "2"})
    assert program_of(payload) is not program_of({**payload, "bundle": "b" * 64})


def test_a_script_gets_its_arguments_environment_and_folder() -> None:
    message = program("command: [python, '{lr}']\nenvironment: {A: b}\nworking_directory: src").to_proto()
    assert list(message.command.arguments) == ["python", "{lr}"]
    assert dict(message.environment) == {"A": "b"}
    assert message.working_directory == "src"
    assert message.bundle == "b" * 64


def test_a_program_carries_the_limits_of_its_logs() -> None:
    message = program("command: [a]\nlogs: {per_job: 1MiB, per_experiment: null}").to_proto()
    assert (message.log_bytes_per_job, message.log_bytes_per_experiment) == (2**20, 0)


def test_a_log_program_knows_which_metric_ends_an_iteration() -> None:
    message = program("log: {command: [fit], metrics: {loss: 'l=(.)', acc: 'a=(.)'}}").to_proto()
    assert dict(message.log.metrics) == {"loss": "l=(.)", "acc": "a=(.)"}
    assert message.log.metric == "acc"


@pytest.mark.parametrize(
    ("named", "given", "used"),
    [
        ("", "", ""),
        ("", "/client/python", "/client/python"),
        ("interpreter: /file/python", "/client/python", "/file/python"),
        ("interpreter: env", "", "env"),
        ("interpreter: env", "/client/env", "/client/env"),
    ],
)
def test_the_files_interpreter_wins_over_the_clients(named: str, given: str, used: str) -> None:
    assert program(f"command: [a]\n{named}", given).to_proto().interpreter == used


def test_a_program_that_ends_by_itself_has_no_end_of_ours() -> None:
    assert settings_of(load_spec(FILE.format(program="command: [a]"))).max_position == ENDLESS


@pytest.mark.parametrize(
    ("said", "every"),
    [
        ("command: [a]", 1),
        ("command: [a]\nsnapshot: {every: 7}", 7),
        ("command: [a]\nsnapshot: {provider: criu}", 0),
        ("command: [a]\nsnapshot: {provider: criu, every: 7}", 7),
        ("log: {command: [fit], metrics: 'a=(.)'}", 0),
    ],
)
def test_processes_are_dumped_by_the_way_only_if_that_is_said(said: str, every: int) -> None:
    assert settings_of(load_spec(FILE.format(program=said))).snapshot_every == every


def test_a_trainers_processes_are_not_dumped() -> None:
    file = FILE.format(program="trainer: t.py:T\nsnapshot: {provider: criu}")
    spec = load_spec(file.replace("jobs: 3", "jobs: 3, max_iterations: 3"))
    with pytest.raises(InvalidInput, match=r"snapshot\.provider: criu is for commands .*use auto or framework"):
        settings_of(spec)


class Learns(Policy):
    """A policy that needs a generator that learns."""

    generator = "tpe"

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("named", "used"),
    [
        ("", "tpe"),
        ("generator: {seed: 7}", "tpe"),
        ("generator: random", "random"),
        ("generator: {name: sobol}", "sobol"),
    ],
)
def test_a_policy_may_bring_the_generator_of_files_that_name_none(named: str, used: str) -> None:
    spec = load_spec(FILE.format(program=f"command: [a]\n{named}")).with_generator(Learns.generator)
    assert spec.generator.name == used
    assert spec.generator.seed == (7 if "seed" in named else 0)
    assert spec_from_json(canonical_json(spec)) == spec


class Refuses(Policy):
    """A policy that accepts only experiments with at most three jobs."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Do nothing."""

    def review(self, terms: ExperimentView) -> str:
        """Raise an error for too many jobs; otherwise return a note."""
        if terms.jobs_left > 3:
            raise ValueError(f"stop.jobs is {terms.jobs_left}; at most 3 are possible")
        assert terms.space is not None
        return f"{6 // (terms.jobs_left - 1)} of {', '.join(terms.space)}"


def test_a_policy_looks_at_the_terms_and_the_space_of_an_experiment_and_may_refuse_them() -> None:
    spec = load_spec(FILE.format(program="command: [a]\npolicy: mine"))
    settings = settings_of(spec)
    assert review(spec.policy.name, Refuses(), settings, spec.space) == "policy mine: 3 of lr"
    with pytest.raises(InvalidInput, match=r"^policy mine: stop\.jobs is 4; at most 3 are possible$"):
        review(spec.policy.name, Refuses(), replace(settings, jobs=4), spec.space)
    with pytest.raises(InvalidInput, match="policy mine: could not look at the terms: ZeroDivisionError"):
        review(spec.policy.name, Refuses(), replace(settings, jobs=1), spec.space)


def test_a_policy_that_needs_data_refuses_an_experiment_without() -> None:
    class Needs(Refuses):
        needs_data = True

    spec = load_spec(FILE.format(program="command: [a]\npolicy: mine"))
    with pytest.raises(InvalidInput, match=r"^data: mine sends jobs to partitioned data, .* name them: `data: NAME`$"):
        need_fit(spec, capabilities_of(Needs()))


@pytest.mark.parametrize("version", [2, "", "x" * 101])
def test_a_version_that_a_journal_cannot_keep_is_refused(version: Any) -> None:
    spec = load_spec(FILE.format(program="command: [a]\npolicy: mine"))
    with pytest.raises(
        InvalidInput, match=r"^policy mine: version: found .*, allowed is a text of 1 to 100 characters$"
    ):
        need_fit(spec, replace(capabilities_of(Refuses()), version=version))


@pytest.mark.parametrize("command", ["command: [a]", "log: {command: [a], metrics: 'a=(.)'}"])
def test_a_policy_that_sends_jobs_to_data_needs_a_trainer_that_learns_where_they_are(command: str) -> None:
    spec = load_spec(FILE.format(program=f"{command}\npolicy: mine\ndata: d"))
    with pytest.raises(InvalidInput, match=r"^(command|log): mine sends jobs to partitioned data, .* use `trainer"):
        need_fit(spec, replace(capabilities_of(Refuses()), needs_data=True))


@pytest.mark.parametrize("command", ["command: [a]", "log: {command: [a], metrics: 'a=(.)'}"])
def test_a_policy_that_trains_on_gangs_needs_a_trainer(command: str) -> None:
    spec = load_spec(FILE.format(program=f"{command}\npolicy: mine"))
    with pytest.raises(InvalidInput, match=r"^(command|log): mine trains jobs on several slots .* `trainer: FILE"):
        need_fit(spec, replace(capabilities_of(Refuses()), scales=True))


def test_data_that_a_policy_reads_nothing_of_are_refused() -> None:
    file = FILE.replace("jobs: 3", "jobs: 3, max_iterations: 3").format(
        program="trainer: t.py:T\npolicy: mine\ndata: d"
    )
    with pytest.raises(InvalidInput, match=r"^data: mine sends no job to a partition, .* such as mop"):
        need_fit(load_spec(file), capabilities_of(Refuses()))
    need_fit(load_spec(file), replace(capabilities_of(Refuses()), needs_data=True))


def test_data_without_partitions_to_evaluate_on_are_told_of() -> None:
    train, evaluate = PlacedPartition("train/0", 1, "h"), PlacedPartition("eval/0", 1, "h")
    spec = load_spec(FILE.format(program="command: [a]"))
    said = unseen_metric(spec, PlacedData("dig", (train,)))
    assert said.startswith("data set dig has no partitions to evaluate on")
    assert "so acc must be among" in said
    assert unseen_metric(spec, PlacedData("dig", (train, evaluate))) == unseen_metric(spec, None) == ""


@pytest.mark.parametrize(
    "program", ["command: [a]\nsnapshot: {provider: criu}", "log: {command: [a], metrics: 'a=(.)'}"]
)
def test_a_process_cannot_go_on_with_what_others_trained(program: str) -> None:
    spec = load_spec(FILE.format(program=f"{program}\npolicy: mine"))
    with pytest.raises(InvalidInput, match=r"^snapshot\.provider: mine lets jobs continue from snapshots of jobs"):
        need_fit(spec, replace(capabilities_of(Refuses()), shares=True))
    need_fit(spec, capabilities_of(Refuses()))


def test_an_experiment_has_no_more_jobs_than_its_space_has_configurations() -> None:
    spec = load_spec(FILE.replace("uniform: [0, 1]", "choice: [1, 2]").format(program="command: [a]\npolicy: mine"))
    assert review(spec.policy.name, Refuses(), settings_of(spec), spec.space) == "policy mine: 6 of lr"


@pytest.mark.parametrize(
    ("policy", "jobs", "said"),
    [
        ("asha", 16, "policy asha: 16 configurations are too few for 5 rungs at eta 4"),
        ("{name: asha, rungs: 3}", 16, ""),
        ("default", 16, ""),
    ],
)
def test_what_a_policy_says_of_the_terms_is_a_note(policy: str, jobs: int, said: str) -> None:
    text = f"command: [a]\npolicy: {policy}"
    spec = load_spec(FILE.replace("jobs: 3", f"jobs: {jobs}, max_iterations: 256").format(program=text))
    note = review(spec.policy.name, new_policy(spec.policy.name, spec.policy.parameters), settings_of(spec), spec.space)
    assert note.startswith(said) if said else note == ""


def test_a_review_that_answers_no_text_is_the_policy_s_mistake() -> None:
    class Mute(Refuses):
        def review(self, terms: ExperimentView) -> str:
            return None  # type: ignore[return-value]

    spec = load_spec(FILE.format(program="command: [a]\npolicy: mine"))
    with pytest.raises(InvalidInput, match="policy mine: review answered None; needed is text"):
        review(spec.policy.name, Mute(), settings_of(spec), spec.space)


ROOM = "command: [a]\nresources: {per_job: {cpus: 2}}"


@pytest.mark.parametrize(
    ("text", "code", "same"),
    [
        (ROOM + "\nseed: 9", "c", True),  # other random numbers take the same time
        (ROOM + "\nsnapshot: {every: 4}\ngenerator: {seed: 3}\nweight: 2", "c", True),
        (ROOM, "d", False),
        ("command: [b]\nresources: {per_job: {cpus: 2}}", "c", False),
        ("command: [a]\nresources: {per_job: {cpus: 4}}", "c", False),
        ("command: [a]\nresources: {per_job: {cpus: 2, gpus: 1}}", "c", False),
        (ROOM + "\nunit: steps", "c", False),
        (ROOM + "\nenvironment: {A: b}", "c", False),
        (ROOM + "\nconstraints: [lr < 0.5]", "c", False),
    ],
)
def test_trainings_that_take_equally_long(text: str, code: str, same: bool) -> None:
    assert (program(text).training(code) == program(ROOM).training("c")) is same


def test_trainings_on_another_search_space_may_take_longer() -> None:
    wider = ExperimentProgram(load_spec(FILE.format(program=ROOM).replace("[0, 1]", "[0, 2]")), "b" * 64, "")
    assert wider.training("c") != program(ROOM).training("c")
    assert wider.root("c") == program(ROOM).root("c")


def test_experiments_of_a_group_have_the_same_range_because_their_policy_compares_their_jobs() -> None:
    text = FILE.format(program="command: [a]")
    first, other = (load_spec(text.replace("max}", f"max, min: 0, max: {high}}}")) for high in (1, 100))
    need_agreement(first, first, "e-1")
    with pytest.raises(
        InvalidInput, match=r"^share: .*agree with e-1; metric\.max: found 100\.0, the group has 1\.0; use another"
    ):
        need_agreement(other, first, "e-1")


def test_a_policy_knows_the_range_of_the_metric() -> None:
    spec = load_spec(FILE.format(program="command: [a]").replace("max}", "max, min: -500, max: 300}"))
    shown = terms_view(settings_of(spec), 3, 0)
    assert (shown.low, shown.high) == (-500.0, 300.0) == (terms_of(spec).low, terms_of(spec).high)
