"""The version of Hopyard, and the time of its import. A separate module, so that internal modules need not import the public names."""

import time
from typing import Final

__version__: Final = "0.1.0"

IMPORTED_AT: Final = time.monotonic()
"""Time of the import in monotonic seconds. A training script takes it as its start, so the time from it to the first report is the
duration of the first iteration.
"""
