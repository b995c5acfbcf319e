"""Successive halving as in the ASHA paper: configurations wait at rungs, and the best are promoted to the next rung.

`rungs`, `bracket`, `brackets` and `ladder` are data structures without a cluster; `asha` and `sha` contain the
policies.
"""

from hopyard_policies.halving.asha import AshaPolicy, AsyncHyperbandPolicy
from hopyard_policies.halving.sha import BohbPolicy, HyperbandPolicy, ShaPolicy

__all__ = ["AshaPolicy", "AsyncHyperbandPolicy", "BohbPolicy", "HyperbandPolicy", "ShaPolicy"]
