"""The version, and when Hopyard was imported. A module apart, so that internals need not import the public names."""

import time
from typing import Final

__version__: Final = "0.1.0"

IMPORTED_AT: Final = time.monotonic()
"""When a training script began, as far as can be told: the time to its first report is its first iteration."""
