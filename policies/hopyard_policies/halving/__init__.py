"""Successive halving as in the ASHA paper: configurations are compared at rungs, and the best of a rung train to the next one.

A *rung* is a position at which jobs are compared. A *ladder* is the sequence of rungs of an experiment. A *bracket* is one successive
halving: configurations that start at its bottom rung and are promoted from rung to rung.

`rungs`, `bracket`, `brackets` and `ladder` are data structures without a cluster; `asha` and `sha` contain the policies.
"""

from hopyard_policies.halving.asha import AshaPolicy, AsyncHyperbandPolicy
from hopyard_policies.halving.sha import BohbPolicy, HyperbandPolicy, ShaPolicy

__all__ = ["AshaPolicy", "AsyncHyperbandPolicy", "BohbPolicy", "HyperbandPolicy", "ShaPolicy"]
