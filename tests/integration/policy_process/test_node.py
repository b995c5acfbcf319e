"""Tests of the bandit policy in JavaScript: it makes the same decisions as the built-in one, and finds its token."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hopyard_scheduler.policy_process.policy import ProcessSource
from tests.integration.policy_process.rig import ROOT, Far, Post, node_policy, searched
from tests.integration.policy_process.test_kill import BANDIT, TERMS, workload
from tests.timing import HANG_SECONDS

__all__ = ["node_policy"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mode", "started", "known"), [("max", False, {}), ("min", True, {}), ("min", False, {"low": -0.1, "high": 0.5})]
)
def test_the_same_journal_comes_of_it(
    node_policy: Path, mode: str, started: bool, known: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = workload()
    trained.mode = "max" if mode == "max" else "min"
    terms = {**TERMS, "parameters": {**BANDIT, **known}}
    wanted, journal = searched(trained, "bandit", monkeypatch, **terms)
    assert wanted.jobs_terminated > 3
    post = Post()
    command = ["node", str(node_policy / "bandit.js"), "--protos", str(ROOT / "protos")]
    process = None
    # A process that is started gets the variables HOPYARD_SERVER, HOPYARD_POLICY and HOPYARD_POLICY_TOKEN.
    source: ProcessSource = post.started(*command) if started else post.dialled("js")
    try:
        if not started:
            process = subprocess.Popen([*command, "--server", post.address, "--name", "js"])
        found, again = searched(trained, "bandit", monkeypatch, lambda _, e: Far(post, source, BANDIT, e), **terms)
    finally:
        if process is not None:
            process.kill()
            process.wait(HANG_SECONDS)
        post.do(source.close())
        post.close()
    assert again == journal
    assert found == wanted


def test_where_its_token_is_found(node_policy: Path, tmp_path: Path) -> None:
    def found(server: str, **variables: str) -> tuple[int, str]:
        code = "console.log(require('./hopyard.js').findToken(process.argv[1]), process.env.HOPYARD_POLICY_TOKEN)"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
        done = subprocess.run(
            ["node", "-e", code, server],
            cwd=node_policy,
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.strip() if done.returncode == 0 else done.stderr

    (tmp_path / "file").write_text("from-file\n")
    variables = {"HOPYARD_USER_TOKEN": "from-variable", "HOPYARD_USER_TOKEN_FILE": str(tmp_path / "file")}
    socket = f"unix:{tmp_path}/data/run/scheduler.sock"
    for server in (socket, "127.0.0.1:4650"):
        assert found(server, **variables) == (0, "from-variable undefined")
        assert found(server, HOPYARD_USER_TOKEN_FILE=str(tmp_path / "file")) == (0, "from-file undefined")
    assert found(socket) == (0, "null undefined")  # The cluster may start later.
    code, error = found("127.0.0.1:4650")
    assert code == 1
    assert "there is no token for 127.0.0.1:4650; set HOPYARD_USER_TOKEN_FILE to a copy of secrets/user.token" in error

    (tmp_path / "data" / "secrets").mkdir(parents=True)
    assert found(socket)[0] == 1
    (tmp_path / "data" / "secrets" / "user.token").write_text("from-data\n")
    assert found(socket, **variables) == (0, "from-data undefined")
    (tmp_path / "data" / "run" / "secrets").mkdir(parents=True)
    (tmp_path / "data" / "run" / "secrets" / "user.token").write_text("from-run\n")
    assert found(socket, **variables) == (0, "from-run undefined")
    # Child processes do not get the token of this process.
    assert found(socket, **variables, HOPYARD_POLICY_TOKEN="own") == (0, "own undefined")


def test_without_a_token_it_ends_with_one_error(node_policy: Path) -> None:
    command = ["node", "bandit.js", "--protos", str(ROOT / "protos"), "--server", "127.0.0.1:1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    done = subprocess.run(command, cwd=node_policy, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: there is no token for 127.0.0.1:1; set HOPYARD_USER_TOKEN_FILE ")
