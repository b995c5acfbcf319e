"""The pytest plugins of the test suite: tiers, stretch factor, leaked processes and files, failure diagnostics."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]

CI_VARIABLE: Final = "HOPYARD_CI"
"""Environment variable that is set in continuous integration."""

PLUGINS: Final = [f"tests.plugins.{name}" for name in ("machine", "tiers", "processes", "leftovers", "failures")]
"""The modules, in the order in which pytest loads them."""
