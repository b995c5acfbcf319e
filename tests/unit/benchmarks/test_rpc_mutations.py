"""Tests of the recorded and mutated requests of the RPC fuzzer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fuzzing.mutation import MutationSource
from fuzzing.rpc_messages import MessageSource
from fuzzing.valid_messages import Recorder
from google.protobuf.descriptor import MethodDescriptor

from hopyard.v1 import appstat_pb2, job_manager_pb2

pytestmark = pytest.mark.quick

PAUSE: MethodDescriptor = job_manager_pb2.DESCRIPTOR.services_by_name["JobManagerService"].methods_by_name["PauseJob"]
PUT: MethodDescriptor = appstat_pb2.DESCRIPTOR.services_by_name["AppStatService"].methods_by_name["PutBlob"]
CALL = [job_manager_pb2.PauseJobRequest(experiment="old", job="1").SerializeToString()]
STREAM = [appstat_pb2.PutBlobRequest(data=b"%d" % number).SerializeToString() for number in range(4)]


def drawn(seed: int, method: MethodDescriptor, calls: int, known: dict[str, Sequence[str]]) -> list[list[bytes]]:
    recordings = {PAUSE.full_name: [CALL], PUT.full_name: [STREAM]}
    source = MutationSource(MessageSource(seed, known), recordings)
    return [source.draw(method) for _ in range(calls)]


def test_equal_seeds_give_equal_calls() -> None:
    for method in (PAUSE, PUT):
        assert drawn(5, method, 50, {}) == drawn(5, method, 50, {})
        assert drawn(5, method, 50, {}) != drawn(6, method, 50, {})


def test_most_calls_name_what_exists_now() -> None:
    named = 0
    for (data,) in drawn(5, PAUSE, 200, {"experiment": ["new"], "job": ["2"]}):
        named += b"new" in data
        assert len(data) < 2_000_000
    assert named > 100


def test_a_repeated_message_of_a_stream_may_change_alone() -> None:
    calls = drawn(5, PUT, 400, {})
    longer = [call for call in calls if len(call) == len(STREAM) + 1]
    assert any(call[place] == call[place + 1] for call in longer for place in range(len(STREAM)))
    assert any(
        sum(one not in STREAM for one in call) == 1 and len(set(call) & set(STREAM)) == len(STREAM) for call in longer
    )


def test_a_method_without_a_recorded_call_has_no_mutation() -> None:
    assert MutationSource(MessageSource(1, {}), {}).draw(PAUSE) == []


def test_few_calls_that_look_alike_are_kept_and_each_that_looks_different() -> None:
    recorder = Recorder()
    for number in range(50):
        recorder.add("m", job_manager_pb2.PauseJobRequest(experiment=f"e{number}", job="1"))
    recorder.add("m", job_manager_pb2.PauseJobRequest(job="2"))
    kept = [job_manager_pb2.PauseJobRequest.FromString(call[0]) for call in recorder.calls["m"]]
    assert [one.experiment for one in kept] == ["e0", "e1", "e2", ""]


def test_few_messages_of_a_stream_that_look_alike_are_kept() -> None:
    recorder = Recorder()
    add = recorder.begin("m")
    add(appstat_pb2.PutBlobRequest(sha256="a" * 64))
    for _ in range(60):
        add(appstat_pb2.PutBlobRequest(data=b"x"))
    ((first, *others),) = recorder.calls["m"]
    assert appstat_pb2.PutBlobRequest.FromString(first).sha256 == "a" * 64
    assert len(others) == 3
