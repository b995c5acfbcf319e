"""How much more does a decision cost if the policy runs in another process?

    python benchmarks/remote_policy.py [--rounds 3] [--node FOLDER] [--json]

It measures the figure `decision` of overhead.py: from the end of an iteration in the training process to the start of the next one,
with the journal and the policy in between, on 8 slots whose iterations last 25 to 75 ms. Each round measures a built-in policy, which
runs in the scheduler; a copy of its class in the experiment's code, which runs in a process that the scheduler starts; and the same
policy in a process that connects to the scheduler (`hopyard policy serve`). With --node, the folder of examples/node_policy after `npm
ci`, it also measures a policy in JavaScript. Target: the median is at most 3 ms above that of the built-in policy.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from figures.decision import ITERATIONS, PACE, POLICY, gaps_of
from figures.timing import TIMED, percentile

from hopyard_policies.median import MedianPolicy

HERE: Final = Path(__file__).parent
MOST_MS: Final = 3.0
_NAME: Final = "each"
_BUILT_IN: Final = "built in"
_OWN: Final = "an own policy"
_NODE: Final = """
const { serve } = require('./hopyard.js');
class Each {
  review() { return { every_iteration: true, ends_jobs: true }; }
  answer(state, call) {
    const commands = [];
    if (call.call === 'allocate_jobs') {
      const slots = state.idleSlots(), jobs = state.idleJobs();
      while (slots.length && jobs.length) {
        commands.push({ start_job: { job: jobs.shift().id, slots: [slots.shift().id] } });
      }
      const wanted = Math.min(state.jobsLeft(), state.slots.size);
      for (let made = 1; made <= wanted; made += 1) commands.push({ create_job: { job: String(state.made + made) } });
    }
    return call.call === 'iteration_finish' ? { commands, decision: 'DECISION_CONTINUE' } : { commands };
  }
}
serve({ Policy: Each, name: process.argv[1], server: process.argv[2], protos: process.argv[3] });
"""


@dataclass(frozen=True)
class Row:
    """Milliseconds per decision over all rounds.

    Attributes:
        p50: Median of `each`.
        each: The median of each round.
        p99: Median of the rounds' 99th percentiles.
        decisions: Number of decisions.
    """

    p50: float
    each: list[float]
    p99: float
    decisions: int

    @classmethod
    def of(cls, rounds: list[list[float]]) -> Row:
        """Return the row for the milliseconds of each decision in each round."""
        each = [percentile(gaps, 0.5) for gaps in rounds]
        p99 = statistics.median(percentile(gaps, 0.99) for gaps in rounds)
        return cls(statistics.median(each), each, p99, sum(map(len, rounds)))


@contextmanager
def in_python(server: str) -> Iterator[str]:
    """Return a context in which `hopyard policy serve` serves the policy to the cluster at `server`; it yields the policy's name."""
    serve = [sys.executable, "-m", "hopyard.cli.main", "policy", "serve", POLICY["name"]]
    command = [*serve, "--name", _NAME, "--server", server]
    with _running(command, HERE) as name:
        yield name


@contextmanager
def in_node(folder: Path, server: str) -> Iterator[str]:
    """Return the same context with a policy in JavaScript. `folder` contains its packages."""
    with _running(["node", "-e", _NODE, _NAME, server, str(HERE.parent / "protos")], folder) as name:
        yield name


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[str]:
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        yield f"remote:{_NAME}"
    finally:
        process.terminate()
        process.wait(30)


async def measure(rounds: int, node: Path | None) -> dict[str, list[list[float]]]:
    """Return the milliseconds of each decision in each round, by where the policy ran."""
    found: dict[str, list[list[float]]] = {}
    for _ in range(rounds):
        for name, serve in (
            (_BUILT_IN, None),
            (_OWN, None),
            ("dialled in, Python", in_python),
            *([("dialled in, JavaScript", lambda server: in_node(node, server))] if node is not None else []),
        ):
            with tempfile.TemporaryDirectory() as folder:
                code = Path(folder) / "code"
                shutil.copytree(TIMED, code)
                shutil.copy(inspect.getfile(MedianPolicy), code / "copied.py")
                policy = f"copied:{MedianPolicy.__name__}" if name == _OWN else POLICY["name"]
                gaps, _ = await gaps_of(Path(folder) / "data", PACE, ITERATIONS, serve, name=policy, code=code)
            found.setdefault(name, []).append(gaps)
    return found


def main() -> None:
    """Run the command line."""
    os.environ["PYTHONPATH"] = str(HERE)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--node", type=Path, help="the folder of the example in JavaScript, its packages installed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.rounds, arguments.node))
    rows = {name: Row.of(rounds) for name, rounds in found.items()}
    base = rows[_BUILT_IN].p50
    more = {name: row.p50 - base for name, row in rows.items() if name != _BUILT_IN}
    if arguments.json:
        document = {"rows": {name: asdict(row) for name, row in rows.items()}, "more_ms": more, "most_ms": MOST_MS}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for name, row in rows.items():
            each = ", ".join(f"{value:.2f}" for value in row.each)
            sys.stdout.write(f"{name:24} p50 {row.p50:6.2f} ms ({each})   p99 {row.p99:6.2f} ms\n")
        for name, value in more.items():
            verdict = "kept" if value <= MOST_MS else "MISSED"
            sys.stdout.write(f"{name}: {value:+.2f} ms at the median; at most {MOST_MS:g}: {verdict}\n")
    sys.exit(any(value > MOST_MS for value in more.values()))


if __name__ == "__main__":
    main()
