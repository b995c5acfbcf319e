"""The live view: a model that watch changes update, and pure functions that draw it."""

from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render

__all__ = ["LiveModel", "render"]
