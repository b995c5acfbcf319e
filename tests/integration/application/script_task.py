"""The conformance task of docs/protocol.md, written as a script that calls `hopyard.report`."""

import math
import os
import tempfile
import time
from pathlib import Path

import hopyard

values = hopyard.hyperparameters()
lr = values["lr"]
if not isinstance(lr, int | float):
    raise ValueError(f"lr is {lr!r}; allowed: a number")
step = lr * (2 if values.get("twice") else 1) * (-1 if values.get("sign") == "minus" else 1)
state = hopyard.checkpoint()
position, x = 0, float(values.get("start", {}).get("x", 0.0))
if state is not None:
    number, text = state.read_text().split()
    position, x = int(number), float(text)
file = Path(tempfile.gettempdir()) / f"hopyard-script-task-{os.getpid()}"
try:
    while position != values.get("last"):
        time.sleep(values.get("seconds", 0))
        x += step
        position += 1
        file.write_text(f"{position} {x!r}")
        hopyard.report(value=math.nan if position == values.get("nan_at") else x, checkpoint=file)
finally:
    file.unlink(missing_ok=True)
