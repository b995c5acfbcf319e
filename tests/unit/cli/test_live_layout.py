"""Tests of what the live view shows in terminals of each size, in each phase of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from hopyard.cli.live.columns import JobTable
from hopyard.cli.live.controls import Controls, SortOrder
from hopyard.cli.live.model import LiveModel
from hopyard.client.types import ExperimentState, Job, JobState, Point
from tests.unit.cli.test_live import drawn, experiment, model

pytestmark = pytest.mark.quick

SIZES = [(80, 24), (120, 40), (200, 50), (60, 16), (40, 10)]
REASON = "waits for a slot: 2 of 2 in its share are busy"
ERROR = "train at position 5: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (8.00 GiB total capacity)"


def values(number: int) -> dict[str, Any]:
    return {
        "batch_size": 32 << number % 3,
        "dropout": number / 50,
        "lr": 0.5**number,
        "momentum": 0.9 - number / 50,
        "seed": 7,
    }


def search(states: Mapping[int, JobState], **changes: Any) -> LiveModel:
    """Return the model of an experiment of 20 jobs, the best of which is job 1."""
    made = LiveModel("digits.yaml", slots=2)
    stop = {"stop": {"jobs": 20, "max_iterations": 40}}
    best = {"best_job": "1", "best_value": 0.963, "best_position": 40} if states.get(1) is JobState.COMPLETED else {}
    made.apply(experiment(spec=stop, slots=2, share=2, **best, **changes), 100.0)
    for number in range(1, 21):
        state = states.get(number, JobState.PENDING)
        position = 40 if state is JobState.COMPLETED else 12 if state.live else 5 if state is JobState.FAILED else 0
        value = None if not position else 0.963 if number == 1 else 0.9 - number / 50
        reason = REASON if state is JobState.PENDING else ERROR if state is JobState.FAILED else ""
        slots = (f"local/{number % 2}",) if state.live else ()
        one = Job("e1", str(number), state, reason, values(number), position, slots=slots)
        made.apply(
            replace(one, best_value=value, last_value=value, best_position=position, seconds=position * 1.5), 100.0
        )
        made.load_curve(str(number), [Point(at, (value or 0) * at / position) for at in range(1, position + 1)])
    return made


def running() -> LiveModel:
    return search(dict.fromkeys(range(1, 9), JobState.COMPLETED) | {9: JobState.RUNNING, 10: JobState.RUNNING})


def waiting() -> LiveModel:
    return search({}, reason="its share is 0 of 2 slots")


def failing() -> LiveModel:
    states = dict.fromkeys(range(1, 5), JobState.COMPLETED) | dict.fromkeys(range(5, 9), JobState.FAILED)
    return search(states | {9: JobState.RUNNING, 10: JobState.RUNNING})


def ended() -> LiveModel:
    return search(dict.fromkeys(range(1, 21), JobState.COMPLETED), state=ExperimentState.COMPLETED)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("phase", [running, waiting, failing, ended])
@pytest.mark.parametrize("selected", [None, "9"])
def test_each_phase_fits_each_size(
    phase: Callable[[], LiveModel], width: int, height: int, selected: str | None
) -> None:
    controls = Controls()
    controls.selected = selected
    lines = drawn(phase(), width, height, controls=controls)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert lines[0].startswith("digits")
    assert " of 20 jobs" in text
    assert "of 2 slots" in text
    assert "best accuracy 0.963  job 1 at 40" in text or phase is waiting
    assert lines[-1].startswith("? keys  q quit")
    (heading,) = [line for line in lines if line.startswith(" job ")]
    assert heading.split()[1].startswith("batch_s")
    assert "seed" not in heading
    assert heading.rstrip().split()[-1] != "job"
    assert len([line for line in lines if line[:1] in (" ", ">") and line[1:2].isdigit()]) >= 3


def test_at_80_columns_the_hyperparameters_that_vary_come_first_then_state_position_and_value() -> None:
    lines = drawn(running(), 80, 24)
    heading = next(line for line in lines if line.startswith(" job "))
    assert heading.split() == ["job", "batch_size", "dropout", "lr", "momentum", "state", "pos", "best", "curve"]
    row = next(line for line in lines if line.startswith(" 9 "))
    assert row.split()[:8] == ["9", "32", "0.18", "0.00195", "0.72", "▶", "running", "12/40"]
    assert "0 of" not in lines[0]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_long_name_leaves_room_for_the_state(width: int) -> None:
    made = running()
    assert made.experiment is not None
    made.apply(replace(made.experiment, name="a-very-long-name-of-an-experiment-" * 4), 100.0)
    text = "\n".join(drawn(made, width, 24))
    assert "a-very-long-na" in text
    assert "  RUNNING" in text
    assert "8 of 20 jobs" in text


def names(width: int, made: LiveModel, **options: Any) -> list[str]:
    jobs = list(made.jobs.values())
    return [column.name for column in JobTable(made, jobs, width, **options).columns]


def test_columns_are_dropped_in_a_sensible_order_as_the_width_shrinks() -> None:
    made = running()
    shown = {width: names(width, made) for width in range(200, 39, -1)}
    least = {name: min(width for width, found in shown.items() if name in found) for name in shown[200]}
    order = ["time", "last", "curve", "state", "momentum", "lr"]
    assert sorted(order, key=lambda name: -least[name]) == order
    assert least["dropout"] == 40
    for found in shown.values():
        assert {" job", "batch_size"} <= set(found)
        assert any(name.startswith("pos") for name in found)
        assert any(name.startswith("best") for name in found)
        hidden = 4 - sum(name in found for name in ("batch_size", "dropout", "lr", "momentum"))
        assert [name for name in found if name.startswith("+")] == ([f"+{hidden}"] if hidden else [])
    assert "time" not in names(80, made)
    assert "time" in names(80, made, by_time=True)


def test_constants_are_not_shown_unless_there_is_nothing_else() -> None:
    one = Job("e1", "1", JobState.RUNNING, hyperparameters={"lr": 0.5, "layers": 2}, slots=("a/0",))
    assert names(80, model(one))[1:3] == ["layers", "lr"]
    other = replace(one, id="2", hyperparameters={"lr": 0.25, "layers": 2})
    assert names(80, model(one, other))[1:3] == ["lr", "state"]
    # A hyperparameter that only some jobs have varies, too.
    conditional = replace(one, id="2", hyperparameters={"lr": 0.5, "layers": 2, "units": 8})
    made = model(one, conditional)
    assert names(80, made)[1:3] == ["units", "state"]
    assert " -  " in drawn(made, 80, 24)[-2]


def test_long_values_are_cut_but_not_to_uselessness() -> None:
    jobs = [
        Job(
            "e1",
            str(n),
            JobState.PENDING,
            hyperparameters={"optimizer": f"{n}-adam-with-decoupled-weight-decay", "x": n},
        )
        for n in (1, 2)
    ]
    row = drawn(model(*jobs), 80, 24)[-2]
    assert row.split()[:3] == ["1", "1-adam-with-dec…", "1"]


def test_text_of_double_width_keeps_the_columns_aligned() -> None:
    jobs = [Job("e1", str(n), JobState.PENDING, hyperparameters={"データ": "日本" * n, "x": n}) for n in (1, 2)]
    from rich.cells import cell_len

    one, two = drawn(model(*jobs), 80, 24)[-2:]
    assert cell_len(one[: one.index("○")]) == cell_len(two[: two.index("○")])


def test_the_selected_job_is_marked_kept_in_sight_and_described() -> None:
    made = running()
    controls = Controls()
    controls.sort, controls.selected = SortOrder.JOB, "19"
    lines = drawn(made, 80, 18, controls=controls)
    assert any(line.startswith(">19 ") for line in lines)
    assert any(line.startswith("... ") and "above" in line for line in lines)
    assert lines[-3].startswith("job 19  batch_size=64 dropout=0.38 lr=1.91e-06 momentum=0.52 seed=7")
    assert lines[-2] == f"pending  0s of training  {REASON}"


@pytest.mark.parametrize(
    ("sort", "first"),
    [(SortOrder.STATE, "1 10"), (SortOrder.VALUE, "1 2"), (SortOrder.TIME, "1 2"), (SortOrder.JOB, "1 2")],
)
def test_jobs_are_sorted(sort: SortOrder, first: str) -> None:
    made = running()
    made.apply(replace(made.jobs["10"], best_value=0.75), 100.0)
    controls = Controls()
    controls.sort = sort
    lines = drawn(made, 100, 40, controls=controls)
    heading = next(index for index, line in enumerate(lines) if line.startswith(" job "))
    assert " ".join(line.split()[0] for line in lines[heading + 1 : heading + 3]) == first
    assert f"sort: {sort.value}" in lines[-1]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_question_and_the_help_fit(width: int, height: int) -> None:
    made = running()
    controls = Controls(owns_cluster=True)
    controls.press("q", [], made.experiment)
    assert drawn(made, width, height, controls=controls)[-1].startswith("y yes, n no:  leave and suspend")
    controls.press("n", [], made.experiment)
    controls.press("?", [], made.experiment)
    lines = drawn(made, width, height, controls=controls)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[-1] == "any key goes back"


def test_amounts_have_the_right_number() -> None:
    one = model(
        Job("e1", "1", JobState.FAILED, "no"),
        Job("e1", "2", JobState.PENDING, REASON),
        spec={"stop": {"jobs": 2}},
        slots=0,
    )
    one.slots = 1
    lines = drawn(one, 80, 24)
    assert "1 of 2 jobs   0 of 1 slot " in lines[0]
    assert lines[3:5] == ["✗ 1 job  no", f"○ 1 job  {REASON}"]
    lines = drawn(search({}), 80, 24, controls=Controls())
    assert lines[-2] == "... 3 more jobs: 3 pending"


def test_a_frame_of_a_thousand_jobs_formats_only_the_rows_that_are_seen() -> None:
    made = LiveModel("digits.yaml", slots=2)
    made.apply(experiment(), 100.0)
    for number in range(1000):
        made.apply(Job("e1", str(number), JobState.PENDING, REASON, values(number), number % 7), 100.0)
    formatted: list[str] = []
    curve = made.curve
    made.curve = lambda job: formatted.append(job) or curve(job)  # type: ignore[method-assign,func-returns-value]
    drawn(made, 120, 40)
    assert 30 <= len(set(formatted)) <= 40
