"""`python -m hopyard._runtime.runner`: started by a node agent, never by hand."""

import os
import sys

from hopyard._runtime.runner.watchdog import die_with


def main() -> int:
    """Serve the agent that started this process; returns the exit code."""
    try:
        parent = int(os.environ["HOPYARD_AGENT_PID"])
    except KeyError as error:
        sys.stderr.write(f"{error.args[0]} is not set: a runner is started by a node agent (hopyard agent)\n")
        return 2
    die_with(parent)
    # Children that a trainer forks (data loaders) do not use gRPC, which would warn of them otherwise.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # After the kernel knows: what follows takes a while, and the agent could die meanwhile.
    from hopyard._runtime.runner.process import RunnerProcess

    for stream in (sys.stdout, sys.stderr):
        # What a trainer prints shows in its log at once.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    RunnerProcess(os.environ).serve()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: libraries of the user's code may keep threads that would hold the process.
    os._exit(code)
