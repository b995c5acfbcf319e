"""Sudden rises of a curve, as a step of the learning rate makes them: taken out, since they say nothing of how it goes on."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIDE: Final = 3
"""So many reports on either side tell a level."""
GAP: Final = 3
"""A step may take so many reports."""
BEFORE: Final = 6
"""So many reports at least are needed before a step, to know how the curve rose until then."""
LEAST: Final = 0.03
"""A smaller rise, in units, is none."""
SUDDEN: Final = 5.0
"""A step rises by this many times as much as the curve did over as many reports in any place shortly before."""
CLEAR: Final = 5.0
"""And by so many deviations of noise."""
_NORMAL: Final = 1.4826
_SECOND_DIFFERENCE: Final = 6**0.5


def without_steps(values: Floats) -> Floats:
    """The curve as if it had begun on the level that its steps brought it to; itself, where it has none.

    Args:
        values: Reports in units, in the order of their positions.
    """
    reach = SIDE + GAP
    if values.size < BEFORE + reach + SIDE:
        return values
    bends = np.abs(np.diff(values, 2)) / _SECOND_DIFFERENCE
    levels = np.median(np.lib.stride_tricks.sliding_window_view(values, SIDE), axis=1)
    rises = levels[reach:] - levels[:-reach]  # From the reports at an index on to those behind the gap.
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
