"""Plots of searches, live and simulated: `hopyard plot`, and the same from Python (docs/plots.md).

searches = read_results(Path("results.json"))
save(gather(searches, "boxes"), Path("boxes.svg"))
"""

from hopyard.plots.kinds import KINDS, default_kind, document, figure, form_of, gather, save
from hopyard.plots.results import read_results
from hopyard.plots.search import Curve, End, Run, Search, Source

__all__ = [
    "KINDS",
    "Curve",
    "End",
    "Run",
    "Search",
    "Source",
    "default_kind",
    "document",
    "figure",
    "form_of",
    "gather",
    "read_results",
    "save",
]
