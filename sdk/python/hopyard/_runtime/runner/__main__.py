"""Main of the runner process, which only node agents start: `python -m hopyard._runtime.runner`."""

import os
import sys

from hopyard._runtime.runner.watchdog import die_with


def main() -> int:
    """Make the runs that the agent sends until there are no more; return the exit code: 0, or 2 if no agent started this process.

    In other cases the process ends without a return: with exit code 75 if the agent is lost or refuses it, 76 if an iteration
    exceeds the time limit, 77 if another rank of the gang is lost.
    """
    try:
        parent = int(os.environ["HOPYARD_AGENT_PID"])
    except KeyError as error:
        sys.stderr.write(f"{error.args[0]} is not set: a runner is started by a node agent (hopyard agent)\n")
        return 2
    die_with(parent)
    # Without this, gRPC warns about each child that a trainer forks (data loaders), although they do not use gRPC.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # Imported after `die_with`, because the import is slow and the agent could die meanwhile.
    from hopyard._runtime.runner.process import RunnerProcess

    for stream in (sys.stdout, sys.stderr):
        # Line buffering makes a trainer's output visible in its log immediately.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    RunnerProcess(os.environ).serve()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # os._exit instead of sys.exit: threads of the user's libraries could keep the process alive.
    os._exit(code)
