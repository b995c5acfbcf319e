"""Runs a service as a process: handles signals, sets up logging, and determines the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hopyard._common.private_files import private_umask
from hopyard._net.server.heap import return_freed_memory
from hopyard._net.server.logs import LogFormat, set_up_logging
from hopyard._net.server.terse_errors import explained
from hopyard.errors import InvalidInput

_log = logging.getLogger(__name__)

SWITCH_SECONDS: Final = 0.0005
"""Interpreter switch interval in seconds: the time after which a thread must release the interpreter lock.

A decision passes through several threads (event loop, gRPC, database). With Python's default of 5 ms,
switching would take most of its time.
"""

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
EXIT_INTERRUPTED: Final = 130

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""Arguments of `gc.set_threshold`: number of new objects before the youngest generation is collected, and so on."""

Main = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""The main function of a service: starts it, waits until the event is set (`Background.wait`), stops it and returns."""


def run_service(main: Main, *, name: str, log_format: LogFormat = LogFormat.TEXT, log_level: str = "INFO") -> int:
    """Run a service until it ends or a signal stops it. The files that it creates are private: meanwhile the umask is 077.

    The first SIGTERM, SIGINT or SIGHUP sets the event that `main` waits for. A second SIGTERM or SIGINT cancels `main`; when `main`
    has ended, the process exits with 130, without waiting for the rest of a stop in progress. SIGHUP stays ignored if it was
    ignored before, as by `nohup`.

    Args:
        main: Coroutine function that starts the service, waits for the event that is its argument, and stops the service.
        name: Name of the service in log entries.
        log_format: Format of log entries.
        log_level: Lowest level that is logged, such as "INFO".

    Returns:
        The exit code. 0: the service ended, or SIGTERM or SIGHUP stopped it. 1: it failed, and the log says why. 2:
            `InvalidInput`, wrong usage. 130: SIGINT stopped it.
    """
    set_up_logging(name, format=log_format, level=log_level)
    sys.setswitchinterval(SWITCH_SECONDS)
    # Few objects of a service are in garbage cycles. With the default threshold of 700 objects, the garbage collector
    # takes a third of the scheduler's time under load.
    gc.set_threshold(*GC_THRESHOLDS)
    return_freed_memory()
    try:
        with private_umask():
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
        elif number is not signal.SIGHUP:  # A closed terminal may cause several, which must not interrupt the stop.
            _log.warning("%s is cancelled by a second signal", name)
            task.cancel()

    handled = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        if not signals:
            raise
        # gRPC would wait forever for servers that were not stopped, so the interpreter would not exit.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    return EXIT_INTERRUPTED if signals and signals[0] is signal.SIGINT else EXIT_DONE
