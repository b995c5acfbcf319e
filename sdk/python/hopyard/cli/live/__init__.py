"""The live view of `hopyard run`: a model that is updated with the changes of an experiment, and functions that draw it."""

from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render

__all__ = ["LiveModel", "render"]
