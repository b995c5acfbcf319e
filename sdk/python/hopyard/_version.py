"""The version of Hopyard, and the time when this process imported it.

This is a separate module, so that internal modules can read both values without importing the public names.
"""

import time
from typing import Final

__version__: Final = "0.1.0"

IMPORTED_AT: Final = time.monotonic()
"""Time of the import in monotonic seconds. A training script takes it as its start, so the time from it to the first report is the
duration of the first iteration.
"""
