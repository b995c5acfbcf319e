"""Tests of the figures: their content, and that equal values give equal bytes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hopyard._runtime.bundle import pack
from hopyard.errors import InvalidInput, Unsupported
from hopyard.plots import (
    KINDS,
    PlottedRun,
    PlottedVisit,
    Search,
    SearchSource,
    figure,
    gather,
    need_writable,
    read,
    save,
)
from hopyard.plots.figures import theme
from tests.unit.plots import hop_data
from tests.unit.plots.given import result


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Search]]:
    """Searches for each kind of plot: one of pop, or 30 of three policies, two of which with the default policy miss the target."""
    many = [result(p, slots=s, order_seed=k) for p in ("default", "bandit", "pop") for s in (2, 8) for k in range(5)]
    for entry in many[:2]:
        entry["time_to_target"] = None
    path = tmp_path_factory.mktemp("results") / "r.json"
    path.write_text(json.dumps([result("pop"), *many]))
    one, *rest = read(path)
    found = {kind: [one] if kind in ("curves", "gantt", "gangs", "pools", "slots") else rest for kind in KINDS}
    return {**found, "hops": [hop_data.search()]}


def drawn(searches: dict[str, list[Search]], kind: str, over: str | None = None) -> tuple[Figure, list[Axes], Any]:
    data = gather(searches[kind], kind, over)
    made = figure(data)
    return made, made.axes, data


def named(axes: Axes, gid: str) -> list[Any]:
    return [one for one in axes.get_children() if one.get_gid() == gid]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def test_curves(searches: dict[str, list[Search]]) -> None:
    _, (axes,), data = drawn(searches, "curves")
    by_end = {end: len(named(axes, end)[0].get_segments()) for end in ("completed", "terminated", "failed")}
    assert sum(by_end.values()) == 60
    assert [f"{count} {end}" for end, count in by_end.items()] == legend(axes)
    (best,) = named(axes, "best")
    assert best.get_ydata().max() == data.best_value
    assert texts(axes) == ["target 0.9", f"best: job {data.best}, {data.best_value:.4g}"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "accuracy")
    assert len(named(axes, "failed ends")[0].get_xdata()) == by_end["failed"]


def test_curves_over_time_show_where_jobs_waited(searches: dict[str, list[Search]]) -> None:
    _, (axes,), data = drawn(searches, "curves", "time")
    assert axes.get_xlabel() == "time since the start [h]"
    waits = sum(len(named(axes, f"{end} waits")[0].get_segments()) for end in ("completed", "terminated", "failed"))
    assert waits == sum(len(curve.resumed) for curve in data.curves) > 0


def test_durations(searches: dict[str, list[Search]]) -> None:
    _, (axes,), data = drawn(searches, "durations")
    assert len(axes.lines) == 3
    for line, policy in zip(axes.lines, data.policies, strict=True):
        assert line.get_ydata()[-1] == 1.0  # type: ignore[index]
        assert max(np.asarray(line.get_xdata())) == pytest.approx(data.policies[0].durations[-1] / 60)
        assert f"({len(policy.durations)} jobs; median " in str(line.get_label())
    assert axes.get_xlabel() == "training time [min]"


def test_boxes_show_every_search_and_those_that_never_reached_it(searches: dict[str, list[Search]]) -> None:
    _, (two, eight), data = drawn(searches, "boxes")
    assert (two.get_title(), eight.get_title()) == ("2 slots", "8 slots")
    assert [label.get_text() for label in two.get_xticklabels()] == ["default\nn = 5", "bandit\nn = 5", "pop\nn = 5"]
    assert len(named(two, "reached default")[0].get_xdata()) == 3
    assert len(named(two, "never default")[0].get_xdata()) == 2
    assert "2 of 5" in texts(two)
    two.figure.canvas.draw()
    assert [label.get_text() for label in two.get_yticklabels()][-1] == "never"
    (box,) = named(two, "box bandit")
    times = data.panels[0].policies[1]
    assert box.get_y() * 3600 == pytest.approx(times.lower)
    assert (box.get_y() + box.get_height()) * 3600 == pytest.approx(times.upper)


def test_capacity(searches: dict[str, list[Search]]) -> None:
    _, (axes,), data = drawn(searches, "capacity")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "8"]
    assert texts(axes) == ["default", "bandit", "pop"]
    (median,) = named(axes, "median pop")
    assert median.get_ydata()[0] * 3600 == pytest.approx(data.panels[0].policies[2].times[0].median)
    assert len({str(line.get_linestyle()) + str(line.get_marker()) for line in axes.lines if line.get_gid()}) == 3


def test_orders(searches: dict[str, list[Search]]) -> None:
    _, (two, eight), _ = drawn(searches, "orders")
    assert legend(two)[0] == "default (2 of 5 never)"
    assert all("(spread " in name for name in legend(eight))
    tops = [max(np.asarray(line.get_ydata())) for line in two.lines]
    assert max(tops) == 1.0
    assert min(tops) == pytest.approx(0.6)


def test_gantt(searches: dict[str, list[Search]]) -> None:
    _, (axes,), data = drawn(searches, "gantt")
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"node/{k}" for k in range(4)]
    bars = [len(collection.get_paths()) for collection in axes.collections]
    assert sum(bars) == len(data.runs)
    assert [int(text.split()[0]) for text in legend(axes)] == bars
    assert len(named(axes, "cut off")[0].get_xdata()) == sum(run.reason == "FAILED" for run in data.runs)
    assert set(texts(axes)) <= {run.job for run in data.runs}


def test_pools_and_jobs_at_the_end(searches: dict[str, list[Search]]) -> None:
    _, (axes,), _ = drawn(searches, "pools")
    assert len(named(axes, "promising")) == len(named(axes, "opportunistic")) == 1
    assert legend(axes) == ["promising", "opportunistic"]
    _, (axes,), data = drawn(searches, "jobs_at_R")
    assert len(axes.lines) == len(data.searches) == 30
    assert legend(axes) == ["default", "bandit", "pop"]
    assert not texts(axes)


def test_that_nobody_was_trained_to_the_end_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{**result("bandit"), "jobs_at_R": [], "R": 64}, {**result("pop"), "jobs_at_R": []}]))
    _, (axes,), _ = drawn({"jobs_at_R": read(path)}, "jobs_at_R")
    assert texts(axes) == ["no job was trained to the end"]
    assert legend(axes) == ["bandit", "pop"]


def test_jobs_that_wait_on_a_rung_are_not_called_complete(tmp_path: Path) -> None:
    path, given = tmp_path / "r.json", result("default", jobs=3)
    given["runs"] = [{**run, "reason": "UNTIL"} for run in given["runs"]]
    path.write_text(json.dumps({**given, "states": {"1": "SUSPENDED", "2": "COMPLETED", "3": "FAILED"}}))
    _, (axes,), _ = drawn({"curves": read(path)}, "curves")
    assert legend(axes) == ["1 completed", "1 stopped", "1 failed"]
    _, (axes,), _ = drawn({"gantt": read(path)}, "gantt")
    assert legend(axes) == ["1 trained to the end", "2 part of the way"]


def gang_search() -> Search:
    """Return a search in which job 1 runs on one slot, is measured on two, is lost on two, and then runs on four."""
    sizes = [
        (0.0, 10.0, 1, "SUSPENDED", "TRAIN"),
        (10.0, 11.0, 2, "UNTIL", "PROFILE"),
        (11.0, 15.0, 2, "LOST", "TRAIN"),
    ]
    runs = [
        PlottedRun(f"n/{slot}", "1", attempt, start, end, reason, mode)
        for attempt, (start, end, size, reason, mode) in enumerate([*sizes, (20.0, 60.0, 4, "UNTIL", "TRAIN")], 1)
        for slot in range(size)
    ]
    return Search(where="gangs", source=SearchSource.SIMULATION, runs=tuple(runs))


def test_gangs() -> None:
    upper, lower = figure(gather([gang_search()], "gangs")).axes
    heights = [np.ptp(path.vertices[:, 1]) for path in named(upper, "runs")[0].get_paths()]
    assert heights == sorted(heights)
    assert len(set(heights)) == 3
    assert len(named(upper, "measured")[0].get_paths()) == 1
    assert list(named(upper, "cut off")[0].get_xdata()) == [15.0]
    assert legend(upper) == ["1: 6 %", "2: 4 %", "4: 90 %", "1 measured"]
    assert texts(upper) == ["1", "2", "4"]  # the run that only measures is too short for a text
    assert lower.get_ylim()[1] == pytest.approx(4 * 1.08)


def test_a_gang_counts_once_and_what_is_measured_apart() -> None:
    (axes,) = figure(gather([gang_search()], "gantt")).axes
    assert legend(axes) == ["1 trained to the end", "1 measured", "1 suspended", "1 lost"]


def test_a_model_on_several_slots_is_drawn_on_the_first_and_tied_to_the_others() -> None:
    found = hop_data.search()
    assert found.visits is not None
    assert found.best_job == "3"
    gang = [PlottedVisit(f"n{n}/0", f"n{n}", "3", f"train/{n}", False, 900.0, 900.0, 950.0, "UNTIL") for n in (4, 2, 5)]
    visits = figure(gather([replace(found, visits=(*found.visits, *gang))], "hops")).axes[0]
    (tie,) = named(visits, "ties")[0].get_segments()
    assert tie[:, 1].tolist() == [2.0, 5.0]
    (way,) = named(visits, "way")[0].get_segments()
    assert way[-1, 1] == 2.0


@pytest.mark.parametrize("over", [None, 90.0])
def test_hops(over: float | None) -> None:
    data = gather([hop_data.search(over=over)], "hops")
    visits, use, moved, held = figure(data).axes
    units = [visit for visit in data.visits if not visit.evaluates]
    assert len(named(visits, "units")[0].get_paths()) == len(units)
    assert len(named(visits, "evaluations")[0].get_paths()) == len(data.visits) - len(units)
    (way,) = named(visits, "way")[0].get_segments()
    assert len(way) == 2 * sum(visit.job == "3" for visit in data.visits)
    assert legend(visits)[0] == f"{len(units)} units, by configuration"
    assert len(named(visits, "before")[0].get_paths()) == len(data.visits)
    assert legend(visits)[2:] == ["pale: not begun yet", "way of the best, job 3", "1 lost"]
    assert [label.get_text() for label in visits.get_yticklabels()] == [f"n{n}/0 ({n})" for n in range(6)]
    assert sum(int(entry.split()[-2]) for entry in legend(use)) in (99, 100, 101)
    assert legend(moved)[0].startswith("from node to node: ")
    assert texts(held) == ["320 MiB", "374 MiB", "1.88 GiB"]


def test_many_hops_are_pixels_and_slots_without_names(tmp_path: Path) -> None:
    data = gather([hop_data.search(48, 50, 1)], "hops")
    visits = figure(data).axes[0]
    assert len(visits.get_yticklabels()) <= 12
    assert not texts(visits)
    save(data, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 900_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_values_give_the_same_bytes(
    searches: dict[str, list[Search]], kind: str, suffix: str, tmp_path: Path
) -> None:
    data, first, second = gather(searches[kind], kind), tmp_path / f"a.{suffix}", tmp_path / f"new/b.{suffix}"
    save(data, first)
    with mpl.rc_context({"font.size": 20.0, "svg.hashsalt": None, "axes.grid": False}):
        save(data, second)
    assert first.read_bytes() == second.read_bytes()
    assert b"<dc:date>" not in first.read_bytes()


@pytest.mark.parametrize("kind", ["curves", "boxes"])
@pytest.mark.parametrize("name", ["$\\frac$", "cost in $ of $", "red \x1b[31m", "party \N{PARTY POPPER}"])
@pytest.mark.filterwarnings("error")
def test_names_are_drawn_as_they_are(kind: str, name: str, tmp_path: Path) -> None:
    path, plot = tmp_path / "r.json", tmp_path / "a.svg"
    path.write_text(json.dumps([{**result("pop"), "metric": name, "policy": name}]))
    save(gather(read(path), kind), plot)
    ElementTree.parse(plot)


def test_a_thousand_curves_are_pixels_in_an_svg(searches: dict[str, list[Search]], tmp_path: Path) -> None:
    (search,) = searches["curves"]
    data = gather(searches["curves"], "curves")
    many = type(search)(where="x", source=search.source, mode="max", curves=data.curves * 20)
    save(gather([many], "curves"), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 400_000


def test_names_of_lines_are_kept_apart() -> None:
    wanted = [0.5, 0.51, 0.52, 0.0, 0.99, 1.2]
    places = theme.spread(wanted, 0.05)
    ordered = sorted(places)
    assert all(b - a >= 0.05 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert [places.index(one) for one in ordered] == [wanted.index(one) for one in sorted(wanted)]
    assert ordered[0] == 0.0
    assert ordered[-1] == 1.0
    assert theme.spread([], 0.05) == []


@pytest.mark.parametrize(
    ("seconds", "told"), [(30, "30 s"), (179, "179 s"), (600, "10 min"), (7.2e4, "20 h"), (5e5, "5.79 days")]
)
def test_times_are_in_units_that_are_read_well(seconds: float, told: str) -> None:
    assert theme.span(seconds) == told


def test_other_files_than_pictures_are_refused(tmp_path: Path, searches: dict[str, list[Search]]) -> None:
    with pytest.raises(InvalidInput, match=r"ends in \.svg or \.png, and this one ends in \.pdf"):
        save(gather(searches["pools"], "pools"), tmp_path / "x.pdf")


def test_matplotlib_is_imported_only_to_draw_and_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, searches: dict[str, list[Search]], tmp_path: Path
) -> None:
    code = "import sys, hopyard.plots, hopyard.plots.experiments; print([m for m in sys.modules if 'matplotlib' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout.strip() == "[]"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unsupported, match=r"pip install .*\[plot\]'"):
        save(gather(searches["pools"], "pools"), tmp_path / "x.png")


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_picture_beside_the_code_makes_it_no_other_code(
    form: str, searches: dict[str, list[Search]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("x = 1")
    (tmp_path / f"own.{form}").write_bytes(b"<svg/>")
    before = pack(tmp_path)
    save(gather(searches["durations"], "durations"), tmp_path / f"tree.{form}")
    assert pack(tmp_path) == before
    assert before.files == (f"own.{form}", "train.py")


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"there is no folder .*away; make it first"):
        need_writable(tmp_path / "away" / "t.svg")
    assert not (tmp_path / "away").exists()
