"""Test that the bandit policy in JavaScript makes the same decisions as the built-in one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.policy_process.rig import ROOT, Far, Post, node_policy, searched
from tests.integration.policy_process.test_kill import BANDIT, TERMS, workload
from tests.timing import HANG_SECONDS

__all__ = ["node_policy"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_same_journal_comes_of_it(node_policy: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = workload()
    trained.mode = "max" if mode == "max" else "min"
    wanted, journal = searched(trained, "bandit", monkeypatch, **TERMS)
    assert wanted.jobs_terminated > 3
    post = Post()
    command = ["node", "bandit.js", "--server", post.address, "--name", "js", "--protos", str(ROOT / "protos")]
    process = subprocess.Popen(command, cwd=node_policy)
    try:
        source = post.dialled("js")
        found, again = searched(trained, "bandit", monkeypatch, lambda _, e: Far(post, source, BANDIT, e), **TERMS)
    finally:
        process.kill()
        process.wait(HANG_SECONDS)
        post.close()
    assert again == journal
    assert found == wanted
