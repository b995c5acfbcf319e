"""Tests of invalid experiment files: errors name the line, the field, the found value and the allowed values."""

import textwrap

import pytest

from hopyard.errors import InvalidInput
from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json
from tests.unit.spec.files import GOOD, changed

pytestmark = pytest.mark.quick

ONE_MISTAKE = [
    (changed(1, "name: has space"), "name: needs 1 to 100 letters, digits, '.', '_' or '-', the first a letter or"),
    (changed(1, "name: 12"), "name: needs text, found 12 (quote it to make it text)"),
    (changed(1, "name:"), "name: needs text, found null"),
    (changed(2, "trainer: train.py"), 'trainer: needs file.py:Class or package.module:Class, found "train.py"'),
    (
        changed(13, "resource: {}"),
        "resource: unknown field (did you mean resources?); allowed: name, trainer, command",
    ),
    (
        changed(2, "command: python train.py"),
        'command: needs a list such as [python, train.py], found "python train.py"',
    ),
    (changed(2, "command: []"), "command: needs a program and its arguments, such as [python, train.py], found []"),
    (changed(2, "command: [python, 3]"), "command[1]: needs text, found 3 (quote it to make it text)"),
    (
        changed(2, "log: {command: [a], metrics: 'acc=[0-9]+'}"),
        "log.metrics.accuracy: needs a group in parentheses around the number, such as acc=([0-9.]+), found",
    ),
    (changed(2, "log: {command: [a], metrics: '('}"), 'log.metrics.accuracy: needs a regular expression, found "("'),
    (
        changed(2, "log: {command: [a], metrics: {loss: 'l=(.*)'}}"),
        "log.metrics: needs a pattern for the experiment's metric accuracy",
    ),
    (
        changed(3, "metric: accuracy"),
        "metric: needs a mapping with name, mode, target, target_over, kill_threshold, min, max, every, found",
    ),
    (
        changed(3, "metric: {name: a}"),
        "metric.mode: is required: Whether larger (max) or smaller (min) values are better",
    ),
    (changed(3, "metric: {name: a, mode: up}"), 'metric.mode: needs one of max, min, found "up"'),
    (changed(3, "metric: {name: '', mode: max}"), 'metric.name: needs at least 1 character, found ""'),
    (changed(3, "metric: {name: a, mode: max, target: .inf}"), "metric.target: needs a finite number, found Infinity"),
    (
        changed(3, "metric: {name: a, mode: max, target_over: 3}"),
        "metric.target_over: found 3, but there is no target: give one (metric.target), or leave this out",
    ),
    (changed(3, "metric: {name: a, mode: max, target: high}"), 'metric.target: needs a finite number, found "high"'),
    (
        changed(3, "metric: {name: a, mode: min, target: 0.9, kill_threshold: 0.1}"),
        "metric.kill_threshold: needs to be above the target 0.9 (mode min), found 0.1",
    ),
    (changed(5, "  lr: {loguniform: [0, 1]}"), "space.lr: loguniform needs low > 0, found [0, 1]"),
    (changed(6, "  b: {subspace: {}}"), "space.b: unknown kind subspace; allowed kinds: uniform, loguniform, int,"),
    (
        changed(6, "  b: {sequence: {warmup: {duration: 5, target: 1, then: {cosine: {tmax: 5}}}}}"),
        "space.b.sequence.warmup.then.cosine.tmax: no such field (did you mean t_max?); allowed: initial, t_max, eta_min",
    ),
    (changed(6, "  b: {choise: [1]}"), "space.b: unknown kind choise (did you mean choice?); allowed kinds:"),
    (changed(6, "  lr: 3"), "space.lr: is given twice, first in line 5"),
    (changed(6, "  7: 3"), "space: a key must be text, found 7 (quote it to make it text)"),
    (changed(9, "generator: {seed: -1}"), "generator.seed: needs a number >= 0, found -1"),
    (changed(9, "generator: {seed: 1.5}"), "generator.seed: needs an integer, found 1.5"),
    (changed(9, "generator: {seed: true}"), "generator.seed: needs an integer, found true"),
    (changed(9, "generator: {name: 'a b'}"), 'generator.name: needs a plugin\'s name or module:Class, found "a b"'),
    (changed(10, "policy: {bad: .nan}"), "policy.bad: needs a JSON value, but nan is not finite"),
    (changed(10, "policy: [pop]"), 'policy: needs a mapping with name, command, inline, found ["pop"]'),
    (changed(11, "stop: {max_iterations: 6, jobs: -1}"), "stop.jobs: needs a number >= 0, found -1"),
    (changed(11, "stop: {max_iterations: 6, jobs: 0}"), "stop.jobs: found 0, which is for experiments that are open"),
    (changed(11, "stop: {max_iterations: 6, jobs: '9'}"), 'stop.jobs: needs an integer, found "9"'),
    (
        changed(11, "stop: {max_iterations: 6, max_time: 15 minutes}"),
        "stop.max_time: needs a length of time such as 30s, 15m, 2h, 1d or 1h30m, found",
    ),
    (changed(11, "stop: {max_iterations: 6, max_time: 0s}"), "stop.max_time: needs a length of time above 0, found"),
    (
        changed(11, "stop: {jobs: 3}"),
        "stop.max_iterations: is required for a trainer: at which position a job is complete",
    ),
    (changed(11, "stop: {max_iterations: 6}"), "stop: needs jobs or max_time: the space is endless"),
    (changed(12, "snapshot: {provider: docker}"), "snapshot.provider: needs one of auto, framework, criu, found"),
    (
        changed(12, "snapshot: {quota: 10 gigs}"),
        'snapshot.quota: needs an amount of bytes such as 500MB, 2GiB or 1073741824, found "10 gigs"',
    ),
    (changed(12, "snapshot: {quota: 1.5}"), "snapshot.quota: needs an amount of bytes such as 500MB, 2GiB or"),
    (changed(12, "snapshot: {quota: 0.5B}"), "snapshot.quota: needs an amount of bytes from 1 to 4611686018427387904"),
    (changed(12, "snapshot: {quota: -3}"), "snapshot.quota: needs an amount of bytes from 1 to 4611686018427387904"),
    (
        changed(12, "snapshot: {keep: 1}"),
        "snapshot.keep: unknown field (did you mean keep_best?); allowed: provider, every",
    ),
    (
        changed(13, "resources:\n  slots: 2\n  per_job:\n    cpu: 1"),
        "resources.per_job.cpu: unknown field (did you mean cpus?); allowed: cpus, gpus",
    ),
    (changed(13, "weight: 0"), "weight: needs a number > 0, found 0"),
    (changed(13, "unit: batches"), 'unit: needs one of steps, epochs, units, found "batches"'),
    (
        changed(13, "command: [python]"),
        "command: needs exactly one of trainer, command, log; found trainer and command",
    ),
    (
        changed(13, "seed: !!python/name:os.system"),
        "seed: the tag tag:yaml.org,2002:python/name:os.system is not allowed",
    ),
    (changed(13, "<<: {seed: 1}"), "merge keys (<<) are not allowed; write the fields out"),
    (changed(13, "seed: [1"), "is not YAML: while parsing a flow sequence"),
]

PER_JOB = "resources:\n  slots: 2\n  per_job:\n    cpu: 1"


@pytest.mark.parametrize(("text", "message"), ONE_MISTAKE, ids=[message.split(" ")[0] for _, message in ONE_MISTAKE])
def test_one_mistake(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(text, "experiment.yaml")
    good = GOOD.splitlines()
    line = next(number for number, found in enumerate(text.splitlines(), 1) if found != good[number - 1 : number][0])
    line += PER_JOB.count("\n") if PER_JOB in text else 0
    assert str(caught.value).startswith(f"experiment.yaml:{line}: {message}")
    assert len(caught.value.problems) == 1, str(caught.value)


def test_all_mistakes_are_told_at_once_in_the_files_order() -> None:
    text = textwrap.dedent("""\
        name: x
        space:
          a: {uniform: [1, 0]}
          b: 3
          c: {int: [0.5, 1]}
        stop:
          jobs: many
        metric: {name: loss, mode: min}
        unit: hours
        trainer: a.py:A
        command: [x]
        """)
    with pytest.raises(SpecError) as caught:
        load_spec(text, "f.yaml")
    assert str(caught.value).splitlines() == [
        "f.yaml:3: space.a: uniform needs low < high, found [1, 0]",
        "f.yaml:5: space.c: int needs integers [low, high], found [0.5, 1]",
        'f.yaml:7: stop.jobs: needs an integer, found "many"',
        'f.yaml:9: unit: needs one of steps, epochs, units, found "hours"',
        "f.yaml:11: command: needs exactly one of trainer, command, log; found trainer and command",
    ]
    assert [problem.field for problem in caught.value.problems][:2] == ["space.a", "space.c"]
    assert isinstance(caught.value, InvalidInput)


@pytest.mark.merge
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "needs a mapping with name, trainer, command, log, metric, space"),
        ("# only a comment\n", 1, "needs a mapping"),
        ("- a\n- b\n", 1, "needs a mapping"),
        ("just text", 1, "needs a mapping"),
        ("name: a\nname: [", 2, "is not YAML"),
        ("name: a\n\tspace: b", 2, "is not YAML"),
        ("a: 1\n---\nb: 2", 2, "is not YAML"),
        ("name: a\nb: \x01", 2, "is not YAML: character 1"),
        ("[" * 3000, 1, "is nested too deeply"),
        ("a" * (2**20 + 1), 1, "needs at most 1048576 characters"),
    ],
)
def test_unreadable_files(text: str, line: int, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(text, "e.yaml")
    assert str(caught.value).startswith(f"e.yaml:{line}: {message}")


@pytest.mark.merge
def test_aliases_that_contain_themselves_or_explode_are_refused() -> None:
    with pytest.raises(SpecError, match=r"a\[0\]: an alias that contains itself is not allowed"):
        load_spec("a: &x [*x]")
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12)
    )
    with pytest.raises(SpecError, match="needs at most 100000 values, aliases counted each time"):
        load_spec(bomb)


@pytest.mark.parametrize(
    ("line", "text", "place"),
    [
        (2, 'command: [python, "\\ud800"]', "command[1]"),
        (6, '  b: {choice: ["a", "\\udfff"]}', "space.b.choice[1]"),
        (6, '  "\\ud800": {choice: [1]}', "space"),
        (10, 'policy: {name: pop, "a": {"b": "x\\ud800"}}', "policy.a.b"),
    ],
)
def test_text_that_is_no_unicode_is_refused(line: int, text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(changed(line, text), "e.yaml")
    assert str(caught.value).startswith(
        f"e.yaml:{line if place != 'space' else 4}: {place}: found text that is no Unicode"
    )
    # The message can be encoded for terminals and the wire.
    str(caught.value).encode()


def test_nor_does_it_come_in_as_json() -> None:
    written = canonical_json(load_spec(GOOD)).replace('"pop"', '"p\\ud800"')
    assert "ud800" in written
    with pytest.raises(SpecError, match="found text that is no Unicode"):
        spec_from_json(written)


def test_a_missing_section_is_told_with_its_meaning() -> None:
    with pytest.raises(SpecError) as caught:
        load_spec("# a comment\nname: x\ntrainer: a:B\n", "e.yaml")
    assert str(caught.value).splitlines() == [
        "e.yaml: metric: is required: What is optimised.",
        "e.yaml: space: is required: The hyperparameters and their values.",
    ]
