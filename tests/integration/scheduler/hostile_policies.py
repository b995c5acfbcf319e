"""Policies that harm their process at the first report. What they take from the computer is bounded."""

from __future__ import annotations

import os
import signal
import stat
import time

from hopyard.policy import Cluster, Decision, IterationFinish
from hopyard_policies.default import DefaultPolicy


class Hostile(DefaultPolicy):
    """A policy that does what `how` says.

    Args:
        how: The name of the method that harms.
    """

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Harm the process."""
        getattr(self, f"_{self._how}")(cluster)
        return super().on_iteration_finish(cluster, event)

    def _exit(self, cluster: Cluster) -> None:
        os._exit(0)

    def _crash(self, cluster: Cluster) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def _loop(self, cluster: Cluster) -> None:
        while True:
            pass

    def _memory(self, cluster: Cluster) -> None:
        held = [b"x" * (32 << 20) for _ in range(32)]
        time.sleep(600 + len(held))

    def _forks(self, cluster: Cluster) -> None:
        for _ in range(300):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
        time.sleep(600)

    def _flood(self, cluster: Cluster) -> None:
        for _ in range(1_000_000):
            cluster.create_job()

    def _garbage(self, cluster: Cluster) -> None:
        for handle in map(int, os.listdir("/proc/self/fd")):
            try:
                if stat.S_ISSOCK(os.fstat(handle).st_mode):
                    os.write(handle, b"\xff" * 1000)  # As a frame of HTTP/2, it is longer than any that is allowed.
            except OSError:
                continue
        time.sleep(600)
