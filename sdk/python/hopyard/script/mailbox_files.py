"""What a script and its runner call the files by which they speak when the script's processes may be dumped at any time."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "HOPYARD_MAILBOX"
"""Environment variable that names the folder of these files."""

REPORTS: Final = "reports"
"""The script appends a line to it for each report: JSON with position, metrics and seconds; with a checkpoint
(its name, and where it lies) it waits until it may go on, whatever is free."""

SAID: Final = "said"
"""The runner writes it anew, JSON: up to which position a script that waits may go on (`go`), below which one it need not wait
(`free`), and, once its run is over, why (`leave`: UNTIL, SUSPENDED or TERMINATED; else empty)."""

SPEAKER: Final = "speaker"
"""The number of the process that reports."""
