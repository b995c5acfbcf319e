"""Tests of the order in which GPUs are released and acquired again, with a driver that only records its calls."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from hopyard._runtime.criu import DumpFailedError, DumpRefusedError, gpu
from hopyard._runtime.criu.gpu import GpuLostError, GpuSuspension, driver

pytestmark = pytest.mark.quick


class Recorder:
    """Simulates a GPU driver: records the calls of each process in order, and fails the calls in `failing`."""

    def __init__(self, *failing: str) -> None:
        self.calls: list[str] = []
        self.failing = set(failing)

    def __call__(self, pid: int) -> Recorded:
        return Recorded(self, pid)


class Recorded:
    def __init__(self, recorder: Recorder, pid: int) -> None:
        self._recorder = recorder
        self._pid = pid

    def _do(self, call: str) -> None:
        self._recorder.calls.append(f"{call} {self._pid}")
        if f"{call} {self._pid}" in self._recorder.failing:
            raise RuntimeError("CUDA_ERROR_NOT_READY")

    def lock(self, timeout_ms: int = 0) -> None:
        assert timeout_ms > 0, "a process that does not come to an end must not hold up the others for ever"
        self._do("lock")

    def checkpoint(self) -> None:
        self._do("checkpoint")

    def restore(self) -> None:
        self._do("restore")

    def unlock(self) -> None:
        self._do("unlock")


def test_all_are_locked_before_the_first_lets_its_gpu_go_and_the_way_back_is_the_reverse() -> None:
    recorder = Recorder()
    suspension = GpuSuspension([7, 8], recorder)
    suspension.suspend()
    assert recorder.calls == ["lock 7", "lock 8", "checkpoint 7", "checkpoint 8"]
    recorder.calls.clear()
    suspension.resume()
    assert recorder.calls == ["restore 8", "restore 7", "unlock 8", "unlock 7"]


@pytest.mark.parametrize(
    ("failing", "undone"),
    [
        ("lock 7", []),
        ("lock 8", ["unlock 7"]),
        ("checkpoint 7", ["unlock 8", "unlock 7"]),
        ("checkpoint 8", ["restore 7", "unlock 8", "unlock 7"]),
    ],
)
def test_what_fails_on_the_way_is_undone_so_that_all_go_on(failing: str, undone: list[str]) -> None:
    recorder = Recorder(failing)
    with pytest.raises(DumpFailedError, match=f"process {failing[-1]}.* cannot release its GPU: CUDA_ERROR_NOT_READY"):
        GpuSuspension([7, 8], recorder).suspend()
    calls = recorder.calls
    assert calls[calls.index(failing) + 1 :] == undone


@pytest.mark.parametrize("failing", ["restore 7", "unlock 8"])
def test_a_process_that_does_not_get_its_gpu_back_is_lost(failing: str) -> None:
    recorder = Recorder()
    suspension = GpuSuspension([7, 8], recorder)
    suspension.suspend()
    recorder.failing.add(failing)
    with pytest.raises(GpuLostError, match=f"process {failing[-1]}.* does not get its GPU back"):
        suspension.resume()


def test_a_process_that_is_lost_while_another_ones_failure_is_undone() -> None:
    with pytest.raises(GpuLostError, match="process 7"):
        GpuSuspension([7, 8], Recorder("checkpoint 8", "restore 7")).suspend()


@pytest.mark.merge
def test_nvidias_own_library_is_asked_and_without_a_driver_a_process_is_left_as_it_is() -> None:
    pytest.importorskip("cuda.bindings", reason="NVIDIA's library is not installed: pip install './hopyard[gpu]'")
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this computer has a GPU: its driver would be asked")
    with pytest.raises(DumpFailedError, match=r"process 1 .*cannot release its GPU: .*driver"):
        GpuSuspension([1], driver()).suspend()


def test_without_the_bindings_of_cuda_core_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str) -> Any:
        raise ImportError("cannot import name 'bindings' from 'cuda'")

    monkeypatch.setattr(gpu, "need", missing)
    with pytest.raises(DumpRefusedError, match="cannot be dumped here: cannot import name 'bindings'"):
        driver()


def test_without_cuda_core_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core.checkpoint", None)
    with pytest.raises(DumpRefusedError, match=r"pip install .*\[gpu\]'"):
        driver()
