"""Detects whether a policy or predictor reads a clock, uses a global random generator, or opens files."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import random
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep")
_FORBIDDEN = {id(getattr(time, name)): f"time.{name}" for name in _CLOCKS}
_FORBIDDEN |= {id(os.urandom): "os.urandom", id(open): "open"}
# `random.random` and similar functions are methods of one hidden instance.
_GLOBAL_RANDOM = getattr(random.random, "__self__", None)


@contextlib.contextmanager
def impurities() -> Iterator[list[str]]:
    """Context manager that records forbidden calls: clocks, global random numbers, unseeded generators, and `open`.

    It yields a list to which a text such as "time.time in decide" (the forbidden function and its caller) is added for
    each call that this thread makes in the `with` block, at most ten. The calls are not prevented. References that were
    imported before (`from time import time`) are also found, because the calls themselves are observed with
    `sys.setprofile`. Calls by the logging module are ignored.
    """
    found: list[str] = []

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "logging":
            return
        name = ""
        if event == "c_call":
            owner = getattr(called, "__self__", None)
            name = _FORBIDDEN.get(id(called), "")
            if owner is _GLOBAL_RANDOM:
                name = f"random.{called.__name__}"
            elif isinstance(owner, type) and issubclass(owner, datetime.date) and called.__name__ in _DATES:
                name = f"{owner.__name__}.{called.__name__}"
        elif event == "call" and frame.f_globals.get("__name__") == "random":
            if frame.f_locals.get("self") is _GLOBAL_RANDOM:
                name = f"random.{frame.f_code.co_name}"
            elif frame.f_code.co_name == "__init__" and frame.f_locals.get("x", 0) is None:
                name = "random.Random() without a seed"
        if name and len(found) < 10:
            caller = frame if event == "c_call" else frame.f_back
            found.append(f"{name} in {caller.f_code.co_name if caller is not None else '?'}")

    earlier = sys.getprofile()
    collecting = gc.isenabled()
    gc.disable()  # Callbacks of the garbage collector may run other code, which must not be blamed on the watched code.
    before = _numpy_state()
    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(earlier)
        if collecting:
            gc.enable()
        if _numpy_state() != before:
            found.append("numpy.random's global state")


_DATES = ("now", "utcnow", "today")


def _numpy_state() -> str:
    numpy = sys.modules.get("numpy")
    return repr(numpy.random.get_state()) if numpy is not None else ""
