"""Detects sudden rises of a curve, such as those after a change of the learning rate, and removes them.

A step of this kind does not repeat, so it would mislead an extrapolation. Values are normalized (0 worst, 1 best).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIDE: Final = 3
"""Number of reports on either side that define a level."""
GAP: Final = 3
"""Maximum number of reports within a step."""
BEFORE: Final = 6
"""Minimum number of reports before a step, to know the earlier rise."""
LEAST: Final = 0.03
"""Minimum rise of a step, as a normalized value."""
SUDDEN: Final = 5.0
"""Minimum ratio of a step's rise to any rise over as many reports shortly before."""
CLEAR: Final = 5.0
"""Minimum rise of a step in standard deviations of noise."""
_NORMAL: Final = 1.4826
_SECOND_DIFFERENCE: Final = 6**0.5


def without_steps(values: Floats) -> Floats:
    """Return a curve without its sudden rises: the reports before each step are raised by the height of the step.

    A curve without steps is returned unchanged.

    Args:
        values: Normalized reports (0 worst, 1 best; see `metric_normalization.Scale`), in the order of their positions.
    """
    reach = SIDE + GAP
    if values.size < BEFORE + reach + SIDE:
        return values
    bends = np.abs(np.diff(values, 2)) / _SECOND_DIFFERENCE
    levels = np.median(np.lib.stride_tricks.sliding_window_view(values, SIDE), axis=1)
    rises = levels[reach:] - levels[:-reach]  # From the reports at an index to those after the gap.
    shifted, behind = values.copy(), BEFORE
    for start in np.flatnonzero(rises > LEAST).tolist():
        if start < behind:
            continue
        past = np.abs(rises[max(0, start - reach - BEFORE) : start - reach + 1])
        noise = _NORMAL * float(np.median(bends[max(0, start - 2 * BEFORE) : start + 1]))
        if rises[start] > max(SUDDEN * float(past.max()), CLEAR * noise):
            peak = start + int(np.argmax(rises[start : start + reach]))
            first, last = peak + SIDE, peak + reach
            shifted[:first] += rises[peak]
            shifted[first:last] = shifted[last : last + SIDE].mean()
            behind = peak + reach + BEFORE
    return shifted
