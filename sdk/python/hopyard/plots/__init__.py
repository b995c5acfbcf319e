"""Plots of live searches, simulated searches and traces (recorded curves): the Python API behind `hopyard plot` (docs/plots.md).

Example:
    searches = read(Path("results.json"))
    save(gather(searches, "boxes"), Path("boxes.svg"))
"""

from hopyard.plots.files import read
from hopyard.plots.model import JobCurve, JobEnd, PartitionReplicas, PlottedRun, PlottedVisit, Search, SearchSource
from hopyard.plots.registry import KINDS, default_kind, document, figure, gather, need_writable, save

__all__ = [
    "KINDS",
    "JobCurve",
    "JobEnd",
    "PartitionReplicas",
    "PlottedRun",
    "PlottedVisit",
    "Search",
    "SearchSource",
    "default_kind",
    "document",
    "figure",
    "gather",
    "need_writable",
    "read",
    "save",
]
