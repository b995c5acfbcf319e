"""A service's life as a process: signals, exit codes, logging."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hopyard._net.server.logs import LogFormat, set_up_logging
from hopyard._net.server.terse_errors import explained
from hopyard.errors import InvalidInput

_log = logging.getLogger(__name__)

SWITCH_SECONDS: Final = 0.0005
"""How long one of a service's threads may keep the interpreter from the others. Several of them (event loop, gRPC, database,
policies) bring one decision on its way, and Python's own 5 ms would be longer than all else."""

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
EXIT_INTERRUPTED: Final = 130

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""Of `gc.set_threshold`: how many more objects there are when the collector looks at the youngest, and so on."""

Main = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""A service's main: starts it, waits until the event is set (`Background.wait`), stops it in order, returns."""


def run_service(main: Main, *, name: str, log_format: LogFormat = LogFormat.TEXT, log_level: str = "INFO") -> int:
    """Run a service until it ends or is told to stop; answers the process's exit code.

    The first SIGTERM or SIGINT sets the event that `main` waits for; the second cancels `main`, and the process ends with
    130 as soon as that has left: what was in the middle of its stop is not waited for.

    Returns:
        0: it ended by itself or on SIGTERM. 1: it failed (the log says why). 2: `InvalidInput`, wrong use. 130:
        SIGINT.
    """
    set_up_logging(name, format=log_format, level=log_level)
    sys.setswitchinterval(SWITCH_SECONDS)
    # What a service makes is mostly kept, or dropped without a cycle: looking for cycles each 700 objects costs a third of a
    # scheduler's time under load.
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return asyncio.run(_run(main, name))
    except InvalidInput as error:
        _log.error("%s: %s", name, error)
        return EXIT_WRONG_USE
    except Exception as error:  # noqa: BLE001
        if message := explained(error):
            _log.error("%s: %s", name, message)
        else:
            _log.exception("%s failed", name)
        return EXIT_FAILED


async def _run(main: Main, name: str) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals: list[signal.Signals] = []
    task = loop.create_task(main(stop), name=name)

    def on_signal(number: signal.Signals) -> None:
        signals.append(number)
        if len(signals) == 1:
            _log.info("%s stops on %s; a second signal ends it at once", name, number.name)
            stop.set()
        else:
            _log.warning("%s is cancelled by a second signal", name)
            task.cancel()

    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        if not signals:
            raise
        # Servers that were not stopped keep the interpreter from ending: gRPC waits for them for ever.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    return EXIT_INTERRUPTED if signals and signals[0] is signal.SIGINT else EXIT_DONE
