"""Successive halving as the ASHA paper means it: configurations wait at rungs, and the best of them are promoted and go on.

`rungs`, `bracket` and `brackets` are arithmetic without a cluster; `asha` and `sha` are the policies made of it.
"""

from hopyard_policies.halving.asha import AshaPolicy, AsyncHyperbandPolicy
from hopyard_policies.halving.sha import BohbPolicy, HyperbandPolicy, ShaPolicy

__all__ = ["AshaPolicy", "AsyncHyperbandPolicy", "BohbPolicy", "HyperbandPolicy", "ShaPolicy"]
