"""Tests of the pytest plugins of this test suite: each rule is broken by a small test module."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.plugins.failures import RESULTS_VARIABLE
from tests.plugins.processes import MARK, is_running
from tests.plugins.tiers import TIERS
from tests.timing import HANG_SECONDS, STRETCH_VARIABLE, scaled

REPOSITORY = Path(__file__).parents[3]
CONFTEST = "from tests.plugins import PLUGINS as pytest_plugins\n"
CONFIGURATION = "[pytest]\nmarkers =\n" + "".join(f"    {tier}\n" for tier in TIERS)


@dataclass
class RunResult:
    """Exit code, output and report folder of a pytest run."""

    code: int
    text: str
    results: Path


class PytestRunner:
    """Runs pytest with the plugins on a test module; a call takes the code of the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables: dict[str, str] = {}
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text(CONFIGURATION)

    def __call__(self, code: str, *options: str) -> RunResult:
        (self.folder / "test_one.py").write_text(code)
        results = self.folder / "results"
        own = {"PYTHONPATH": str(REPOSITORY), STRETCH_VARIABLE: "1", RESULTS_VARIABLE: str(results)}
        others = ("PYTEST_XDIST", "PYTEST_TIMEOUT", "PYTEST_CURRENT_TEST", MARK)
        without = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", *options, "test_one.py"],
            cwd=self.folder,
            env=without | own | self.variables,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        return RunResult(done.returncode, done.stdout + done.stderr, results)


@pytest.fixture
def run(tmp_path: Path) -> PytestRunner:
    return PytestRunner(tmp_path)


# ---------------------------------------------------------------------------------------------------------------- tiers


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("import time; time.sleep(0.01)", "sleeps"),
        ("import asyncio; asyncio.run(asyncio.sleep(0.01))", "sleeps"),
        ("import subprocess; subprocess.run(['true'])", "starts a process"),
        (
            "import multiprocessing as m; p = m.get_context('spawn').Process(target=print); p.start(); p.join()",
            "starts a process",
        ),
        ("import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)", "starts a process"),
        ("import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))", "opens a socket"),
        ("import socket; socket.create_server(('127.0.0.1', 0)).close()", "opens a socket"),
        ("import grpc; grpc.insecure_channel('127.0.0.1:1').close()", "opens a socket"),
        (
            "deadline = __import__('time').process_time() + 3\n    while __import__('time').process_time() < deadline: pass",
            "uses",
        ),
    ],
)
def test_a_quick_test_that_is_not_quick_fails_by_name(run: PytestRunner, line: str, fault: str) -> None:
    ran = run(f"import pytest\n\n@pytest.mark.quick\ndef test_it():\n    {line}\n", "--tier", "quick")
    assert ran.code == 1
    assert f"a quick test {fault}" in ran.text
    assert "ERROR test_one.py::test_it" in ran.text


def test_a_quick_test_may_compute_wait_for_nothing_and_write_files(run: PytestRunner) -> None:
    code = "import pytest, time, asyncio\n\n@pytest.mark.quick\ndef test_it(tmp_path):\n"
    ran = run(code + "    time.sleep(0)\n    asyncio.run(asyncio.sleep(0))\n    (tmp_path / 'a').write_text('a')\n")
    assert ran.code == 0, ran.text


TIER_MODULE = """
import pytest

@pytest.mark.quick
def test_quick(): pass

def test_unmarked(): pass

@pytest.mark.quick
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_parameters(n): pass

@pytest.mark.nightly
class TestNightly:
    def test_in_class(self): pass

    @pytest.mark.merge
    def test_closest_marker(self): pass

class Suite:
    def test_inherited(self): pass
    def test_expensive(self): pass

@pytest.mark.quick(merge=["test_expensive"])
class TestSuite(Suite): pass
"""
IN_TIER = {
    "quick": {"test_quick", "test_parameters[1]", "TestSuite::test_inherited"},
    "merge": {"test_unmarked", "TestNightly::test_closest_marker", "TestSuite::test_expensive"},
    "nightly": {"test_parameters[2]", "TestNightly::test_in_class"},
}


@pytest.mark.parametrize("tiers", ["quick", "merge", "nightly", "quick,merge"])
def test_a_tier_runs_its_tests_and_no_others(run: PytestRunner, tiers: str) -> None:
    ran = run(TIER_MODULE, "--tier", tiers, "--collect-only", "-q")
    found = {line.partition("::")[2] for line in ran.text.splitlines() if line.startswith("test_one.py::")}
    assert found == set().union(*(IN_TIER[tier] for tier in tiers.split(",")))


def test_an_unknown_tier_is_refused(run: PytestRunner) -> None:
    ran = run(TIER_MODULE, "--tier", "fast")
    assert ran.code == 4
    assert "there is no tier 'fast'; there are quick, merge, nightly" in ran.text


# ------------------------------------------------------------------------------------------------------------ leftovers


def test_a_process_that_a_test_leaves_is_named_and_killed(run: PytestRunner) -> None:
    run.variables["TEST_PID_FILE"] = str(run.folder / "pid")
    orphan = "import os, subprocess, sys\n\ndef test_it():\n    script = 'sleep 600 & echo $! >$TEST_PID_FILE'\n"
    ran = run(orphan + "    subprocess.run(['sh', '-c', script], stdout=subprocess.DEVNULL)\n", "--tier", "merge")
    assert ran.code == 1
    assert "the test leaves behind the process" in ran.text
    assert "sleep 600" in ran.text
    assert not is_running(int((run.folder / "pid").read_text()))


def test_a_process_of_a_wider_fixture_stays(run: PytestRunner) -> None:
    code = """
import subprocess
import pytest

@pytest.fixture(scope="module")
def process():
    with subprocess.Popen(["sleep", "600"]) as found:
        yield found
        found.kill()

def test_one(process):
    subprocess.run(["true"])

def test_two(process):
    subprocess.run(["true"])
    assert process.poll() is None
"""
    ran = run(code)
    assert ran.code == 0, ran.text


def test_a_process_that_a_wider_fixture_leaves_is_named(run: PytestRunner) -> None:
    code = """
import subprocess
import pytest

@pytest.fixture(scope="module")
def process():
    found = subprocess.Popen(["sleep", "600"], start_new_session=True)
    found.returncode = 0
    yield found

def test_one(process): pass

def test_two(process): pass
"""
    ran = run(code)
    assert ran.code == 1
    assert "sleep 600 of a fixture" in ran.text


IN_PROCESS_SERVICE = """
import subprocess
import pytest

@pytest.fixture(scope="module")
def service():
    started = []
    yield started
    {end}

def test_one(service):
    service.append(subprocess.Popen(["sleep", "600"]))
    service[0].returncode = {code}

def test_two(service): pass
"""


def test_a_process_that_a_service_of_a_wider_fixture_starts_stays_until_its_end(run: PytestRunner) -> None:
    ran = run(IN_PROCESS_SERVICE.format(end="started[0].kill(); started[0].wait()", code=None), "-p", "no:randomly")
    assert ran.code == 0, ran.text


def test_a_process_that_a_service_of_a_wider_fixture_leaves_is_named(run: PytestRunner) -> None:
    ran = run(IN_PROCESS_SERVICE.format(end="pass", code=0), "-p", "no:randomly")
    assert ran.code == 1
    assert "sleep 600 of a fixture" in ran.text


LOCKED_FOLDER = """
import fcntl, os, shutil, tempfile
import pytest

@pytest.fixture(scope="module")
def service():
    made = []
    yield made
    {end}

def leave(service):
    made = tempfile.mkdtemp()
    service.append((made, os.open(made, os.O_RDONLY)))
    {lock}

def test_one(service):
    leave(service)

def test_two(service):
    leave(service)
"""
_LOCK = "fcntl.flock(service[-1][1], fcntl.LOCK_EX)"
_REMOVE = "[shutil.rmtree(path) for path, _ in made]"


def test_a_folder_that_a_service_of_a_wider_fixture_locks_stays_until_its_end(run: PytestRunner) -> None:
    ran = run(LOCKED_FOLDER.format(lock=_LOCK, end=_REMOVE))
    assert ran.code == 0, ran.text


@pytest.mark.parametrize(
    ("lock", "end", "found"),
    [(_LOCK, "pass", "of a fixture"), ("pass", _REMOVE, "the test leaves behind the file")],
)
def test_a_locked_folder_that_stays_and_one_without_a_lock_are_named(
    run: PytestRunner, lock: str, end: str, found: str
) -> None:
    ran = run(LOCKED_FOLDER.format(lock=lock, end=end))
    assert ran.code == 1
    assert found in ran.text


def test_a_file_that_a_test_leaves_is_named(run: PytestRunner) -> None:
    ran = run("import tempfile\n\ndef test_it():\n    tempfile.mkstemp(prefix='forgotten')\n")
    assert ran.code == 1
    assert "the test leaves behind the file" in ran.text
    assert "forgotten" in ran.text


# ------------------------------------------------------------------------------------------------------------- failures


def test_a_failure_says_how_to_repeat_it_and_shows_logs_and_stacks(run: PytestRunner) -> None:
    code = """
import subprocess, sys, pytest

@pytest.fixture
def service(tmp_path):
    program = "import time\\ndef hangs():\\n    print('up', flush=True)\\n    time.sleep(600)\\nhangs()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as found:
        found.stdout.readline()
        yield found
        found.kill()

def test_it(service, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "scheduler.log").write_text("the service said this")
    assert False, "as it should"
"""
    ran = run(code, "-p", "randomly", "--randomly-seed=7", "--tier", "merge")
    assert ran.code == 1
    assert "python -m pytest --randomly-seed=7 --tier=merge test_one.py::test_it" in ran.text
    assert "the service said this" in ran.text
    assert "hangs (<string>" in ran.text
    assert (ran.results / "failed.txt").read_text() == "test_one.py::test_it\n"
    assert "test_one.py::test_it" in (ran.results / "slowest.txt").read_text()
    (case,) = ElementTree.parse(ran.results / "junit.xml").getroot().iter("testcase")
    assert case.get("name") == "test_it"


def test_the_stacks_of_a_test_that_hangs_are_shown(run: PytestRunner) -> None:
    code = "import threading\n\ndef waits():\n    threading.Event().wait()\n\ndef test_it():\n    waits()\n"
    run.variables["PYTEST_TIMEOUT"] = str(scaled(3.0))
    ran = run(code)
    assert ran.code == 1
    assert "thread" in ran.text
    assert "in waits" in ran.text.partition("- stacks -")[2]


# --------------------------------------------------------------------------------------------------------- slow machines


def test_intervals_and_time_limits_stretch_on_a_slow_machine(run: PytestRunner) -> None:
    run.variables[STRETCH_VARIABLE] = "3"
    code = """
import os, pytest
from tests.timing import HANG_SECONDS, scaled

@pytest.mark.timeout(200)
def test_it(request):
    assert (scaled(2.0), HANG_SECONDS) == (6.0, 450.0)
    assert os.environ["PYTEST_TIMEOUT"] == "540.0"
    assert request.node.get_closest_marker("timeout").args == (600.0,)
"""
    ran = run(code)
    assert ran.code == 0, ran.text
    assert "intervals of tests stretched 3 times" in ran.text


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "inf", "abc", ""])
def test_a_factor_that_is_no_number_of_at_least_one_is_refused(run: PytestRunner, factor: str) -> None:
    run.variables[STRETCH_VARIABLE] = factor
    ran = run("def test_it(): pass\n")
    assert ran.code != 0
    assert f"{STRETCH_VARIABLE}: found {factor!r}, allowed are finite numbers of at least 1" in ran.text
