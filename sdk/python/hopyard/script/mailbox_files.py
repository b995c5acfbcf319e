"""Names of the files through which a script and its runner exchange messages, if the script's processes may be dumped."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "HOPYARD_MAILBOX"
"""Environment variable that names the folder of these files."""

REPORTS: Final = "reports"
"""File to which the script appends a line for each report: JSON with position, metrics and seconds. After a report with a
checkpoint (its name and path) the script waits for `go`, whatever `free` is (see `SAID`)."""

SAID: Final = "said"
"""File that the runner replaces, JSON: `go`, up to which position a waiting script may continue; `free`, below which position
it need not wait; and `leave`, why the run is over (UNTIL, SUSPENDED or TERMINATED; empty: it is not over)."""

SPEAKER: Final = "speaker"
"""File with the process id of the process that makes the run's reports."""
