"""Draws the plot `slots`: desired and deserved slots over the confidence (HyperDrive, figure 4); see `hopyard.plots.data.slots`."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hopyard.plots.data.slots import SlotMoment, Slots
from hopyard.plots.figures import theme


def draw(data: Slots) -> Figure:
    """Draw desired and deserved slots (see `hopyard.plots.data.slots`) over the confidence p, one panel per moment of `data`."""
    figure, all_axes = theme.grid(len(data.moments), 3.4, theme.HEIGHT, columns=2)
    unit = theme.time_unit(max(moment.time for moment in data.moments))
    most = max(max(moment.slots, *(slots for _, slots in moment.desired)) for moment in data.moments)
    all_axes[0].set_ylim(0.0, 1.05 * most)  # The panels share it.
    for axes, moment in zip(all_axes, data.moments, strict=True):
        _panel(axes, moment)
        axes.set_title(f"after {moment.time / unit.seconds:.3g} {unit.name}", loc="left", pad=22)
        axes.set_xlabel("confidence p")
    all_axes[0].set_ylabel("slots")
    return figure


def _panel(axes: Axes, moment: SlotMoment) -> None:
    rising = sorted(moment.desired)
    p = np.array([0.0, *(one for one, _ in rising), 1.0])
    wanted = np.array([rising[0][1], *(slots for _, slots in rising), 0.0])
    # Desired slots are constant from p down to the next smaller confidence.
    axes.step(p, wanted, where="pre", color=theme.BLUE, linewidth=1.4, gid="desired", label="desired")
    axes.plot(
        [0.0, 1.0], [0.0, moment.slots], color=theme.VERMILLION, linewidth=1.4, linestyle=(0, (4.0, 1.5)), gid="deserved",
        label="deserved",
    )  # fmt: skip
    if moment.threshold is not None:
        axes.plot(
            moment.threshold, moment.effective, "o", color=theme.INK, markersize=4.5, zorder=5, gid="effective",
            label=f"{moment.promising} promising",
        )  # fmt: skip
        axes.plot([moment.threshold] * 2, [0.0, moment.effective], color=theme.INK, linewidth=0.6, linestyle=":")
    axes.set_xlim(0.0, 1.0)
    theme.whole_numbers(axes, "y")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2, handlelength=1.6, columnspacing=1.0
    )
