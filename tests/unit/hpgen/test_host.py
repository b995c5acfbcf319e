"""Tests of the host of generators that run inside the service: many experiments in one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound, Unavailable
from hopyard.generator import Result
from hopyard_hpgen import host as host_module
from hopyard_hpgen.call_log import Call, CreateCall, ReportCall, ReportFinalCall
from hopyard_hpgen.experiment_generator import GeneratorFailed
from hopyard_hpgen.host import GeneratorHost
from tests.timing import HANG_SECONDS, scaled
from tests.unit.hpgen.slow import Hangs, Slow
from tests.unit.hpgen.test_domain import spec

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the generators of the tests on threads, like built-in ones."""
    monkeypatch.setattr(host_module, "runs_inline", lambda generator: True)


@pytest.fixture
async def host() -> AsyncIterator[GeneratorHost]:
    made = GeneratorHost()
    Slow.started.clear()
    Slow.may_go_on.clear()
    yield made
    Slow.may_go_on.set()
    await made.close()


SLOW = spec("tests.unit.hpgen.slow:Slow")


async def test_experiments_have_generators_of_their_own(host: GeneratorHost) -> None:
    assert await host.open("one", spec("random", seed=1)) == (None, "nothing")
    await host.open("two", spec("random", seed=2))
    assert await host.create_job("one", "a") != await host.create_job("two", "a")


async def test_opening_again_finds_it(host: GeneratorHost) -> None:
    await host.open("e", spec("random"))
    first = await host.create_job("e", "a")
    await host.open("e", spec("random"))
    assert await host.create_job("e", "b") != first
    with pytest.raises(Conflict, match="experiment e: its generator is open with another space"):
        await host.open("e", spec("random", seed=1))


async def test_the_record_wins_over_what_was_asked_without_recording(host: GeneratorHost) -> None:
    await host.open("e", spec("random"))
    first, second = await host.create_job("e", "a"), await host.create_job("e", "b")
    await host.open("e", spec("random"), [CreateCall("a", first)])
    assert await host.create_job("e", "another") == second


async def test_what_is_not_open_says_what_to_do(host: GeneratorHost) -> None:
    with pytest.raises(NotFound, match=r"experiment e: its generator is not open here .* with its recorded calls"):
        await host.create_job("e", "a")
    await host.open("e", spec("random"))
    await host.forget("e")
    await host.forget("e")
    with pytest.raises(NotFound):
        await host.report_performance("e", "a", 1, {})
    with pytest.raises(NotFound):
        await host.report_final_performance("e", "a", Result({}))


async def test_what_cannot_be_made_leaves_nothing_behind(host: GeneratorHost) -> None:
    with pytest.raises(InvalidInput):
        await host.open("e", spec("nothing"))
    with pytest.raises(NotFound):
        await host.create_job("e", "a")
    await host.open("e", spec("random"))


async def test_a_failed_generator_is_made_anew_when_opened_again(host: GeneratorHost) -> None:
    crashes = spec("tests.unit.hpgen.test_domain:Crashes")
    await host.open("e", crashes)
    first = await host.create_job("e", "a")
    with pytest.raises(GeneratorFailed):
        await host.create_job("e", "b")
    await host.open("e", crashes)
    assert await host.create_job("e", "a") == first


@pytest.mark.parametrize(("experiment", "job"), [("", "a"), ("e", "")])
async def test_ids_are_not_empty(host: GeneratorHost, experiment: str, job: str) -> None:
    with pytest.raises(InvalidInput, match="needs an id, found nothing"):
        await host.create_job(experiment, job)


async def test_open_generators_are_bounded(host: GeneratorHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_OPEN", 2)
    await host.open("one", spec("random"))
    await host.open("two", spec("random"))
    await host.open("two", spec("random"))
    with pytest.raises(Exhausted, match="2 generators are open, which is the limit"):
        await host.open("three", spec("random"))


async def test_a_slow_generator_holds_up_only_its_experiment(host: GeneratorHost) -> None:
    await host.open("slow", SLOW)
    await host.open("quick", spec("random"))
    waiting = [asyncio.ensure_future(host.create_job("slow", job)) for job in "ab"]
    await asyncio.to_thread(Slow.started.wait, HANG_SECONDS)
    assert await host.create_job("quick", "a") is not None
    Slow.may_go_on.set()
    one, two = await asyncio.gather(*waiting)
    assert one != two


async def test_a_caller_that_leaves_changes_nothing(host: GeneratorHost) -> None:
    await host.open("slow", SLOW)
    left = asyncio.ensure_future(host.create_job("slow", "a"))
    await asyncio.to_thread(Slow.started.wait, HANG_SECONDS)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    Slow.may_go_on.set()
    await host.open("other", spec("random"))
    assert await host.create_job("slow", "a") == await host.create_job("other", "a")


async def test_calls_that_wait_for_a_generator_that_goes_are_told(host: GeneratorHost) -> None:
    await host.open("slow", SLOW)
    under_way = asyncio.ensure_future(host.create_job("slow", "a"))
    await asyncio.to_thread(Slow.started.wait, HANG_SECONDS)
    waiting = asyncio.ensure_future(host.create_job("slow", "b"))
    await asyncio.sleep(0)
    await host.forget("slow")
    with pytest.raises(Unavailable, match="closed meanwhile"):
        await waiting
    Slow.may_go_on.set()
    assert await under_way is not None


async def test_closing_is_safe_twice_and_final(host: GeneratorHost) -> None:
    await host.open("e", spec("random"))
    await host.close()
    await host.close()
    with pytest.raises(NotFound):
        await host.create_job("e", "a")
    with pytest.raises(Unavailable, match="stops"):
        await host.open("e", spec("random"))


LIMIT = scaled(0.3)


@pytest.fixture
async def brief() -> AsyncIterator[GeneratorHost]:
    """A generator host with a short time limit for calls."""
    Hangs.behaves.clear()
    made = GeneratorHost(seconds=LIMIT)
    yield made
    Hangs.behaves.set()
    await made.close()


HANGS = spec("tests.unit.hpgen.slow:Hangs")


@pytest.mark.merge
async def test_a_generator_that_hangs_is_given_up_and_says_so(brief: GeneratorHost) -> None:
    await brief.open("hangs", HANGS)
    await brief.open("quick", spec("random"))
    first = await brief.create_job("hangs", "a")
    hanging = [asyncio.ensure_future(brief.create_job("hangs", job)) for job in "bc"]
    await asyncio.sleep(0)
    assert await brief.create_job("quick", "a") == first
    reason = rf"generator .*:Hangs: create\('b'\) took longer than {LIMIT:g} s"
    for call in hanging:  # also the one that waited for the first one
        with pytest.raises(GeneratorFailed, match=reason):
            await call
    with pytest.raises(GeneratorFailed, match=reason):
        await brief.report_final_performance("hangs", "a", Result({}))


async def test_one_that_was_given_up_is_made_anew_when_opened_again(brief: GeneratorHost) -> None:
    await brief.open("e", HANGS)
    first = await brief.create_job("e", "a")
    with pytest.raises(GeneratorFailed, match=r"report_final\('a'\) took longer"):
        await brief.report_final_performance("e", "a", Result({}))
    Hangs.behaves.set()
    await brief.open("e", HANGS, [CreateCall("a", first)])
    assert await brief.create_job("e", "b") not in (None, first)


async def test_one_that_hangs_while_it_is_made_leaves_nothing_behind(brief: GeneratorHost) -> None:
    unmakeable = spec("tests.unit.hpgen.slow:Unmakeable")
    with pytest.raises(
        GeneratorFailed, match=rf"experiment e: generator .*:Unmakeable: open took longer than {LIMIT:g} s"
    ):
        await brief.open("e", unmakeable)
    with pytest.raises(NotFound):
        await brief.create_job("e", "a")
    await brief.open("e", spec("random"))


@pytest.mark.merge
async def test_one_that_hangs_over_its_recorded_calls_is_given_up(brief: GeneratorHost) -> None:
    calls = [CreateCall(job, None) for job in "ab"]
    with pytest.raises(Conflict):
        await brief.open("e", HANGS, calls)
    Hangs.behaves.set()
    await brief.open("e", HANGS)
    proposed = {job: await brief.create_job("e", job) for job in "ab"}
    Hangs.behaves.clear()
    with pytest.raises(GeneratorFailed, match="open took longer"):
        await brief.open("other", HANGS, [CreateCall(job, made) for job, made in proposed.items()])


async def test_closing_waits_for_nobody_that_hangs() -> None:
    Hangs.behaves.clear()
    made = GeneratorHost(seconds=600)
    await made.open("e", HANGS)
    hanging = asyncio.ensure_future(made.report_final_performance("e", "a", Result({})))
    await asyncio.sleep(0)
    async with asyncio.timeout(HANG_SECONDS):
        await made.close()
        with pytest.raises(Unavailable, match="closed meanwhile"):
            await hanging
    Hangs.behaves.set()


async def test_a_generator_that_ends_processes_has_failed(host: GeneratorHost) -> None:
    await host.open("e", spec("tests.unit.hpgen.slow:Leaves"))
    with pytest.raises(GeneratorFailed, match=r"create\('a'\) raised SystemExit: enough"):
        await host.create_job("e", "a")


async def test_recorded_calls_may_come_in_parts(host: GeneratorHost) -> None:
    learning = spec("tests.unit.hpgen.test_domain:Recorder")
    await host.open("whole", learning)
    calls: list[Call] = [CreateCall(job, await host.create_job("whole", job)) for job in "ab"]
    await host.open("parts", learning, calls[:1], more=True)
    with pytest.raises(NotFound, match="open it again with its recorded calls"):
        await host.create_job("parts", "b")
    with pytest.raises(NotFound):
        await host.report_performance("parts", "a", 1, {})
    assert (await host.replay_calls("parts", calls[1:])).reads == "reports"
    results: list[Call] = [ReportCall("a", 1, {"loss": 1.0}), ReportFinalCall("b", Result({"loss": 2.0}))]
    for name in ("parts", "whole"):
        await host.replay_calls(name, results)
    assert await host.create_job("parts", "c") == await host.create_job("whole", "c")
    with pytest.raises(NotFound):
        await host.replay_calls("none", results)


async def test_a_half_told_life_may_be_begun_anew(host: GeneratorHost) -> None:
    await host.open("e", spec("random"), more=True)
    await host.open("e", spec("random"))
    assert await host.create_job("e", "a") is not None


async def test_parts_that_come_out_otherwise_leave_the_generator_closed(host: GeneratorHost) -> None:
    await host.open("e", spec("random"), more=True)
    with pytest.raises(Conflict, match="is not deterministic, or has changed: for job a it proposed"):
        await host.replay_calls("e", [CreateCall("a", {"lr": 0.5})])
    with pytest.raises(NotFound):
        await host.create_job("e", "a")
