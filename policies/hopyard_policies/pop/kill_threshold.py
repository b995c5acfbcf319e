"""The kill threshold: recognizes jobs that never learn, and jobs that stop learning (HyperDrive, sections 5.3 and 6.3)."""

from __future__ import annotations

from typing import Final

from hopyard.policy import Cluster

CRASH_BOUNDARIES: Final = 2
"""Default of `crash_after`, in boundaries of POP.

In the development half of the recorded LunarLander agents (`benchmarks/policies.yaml`), it ends 7 of the 22 that do not reach the
target, and none of the 8 that do. One boundary would end some of these.
"""


def not_learning(cluster: Cluster, job: str, crash_after: int) -> bool:
    """Return whether a job does not learn, by its experiment's kill threshold: it never learned, or its learning crashed.

    A value is *low* if it is not better than the threshold, or not finite. Reports without the metric are ignored. A job never learned
    if all its values are low. Its learning *crashed* (section 6.3) if it had a better value once, and its latest values are low over
    at least `crash_after` units: the distance between the first and the last position of the latest uninterrupted low values. One
    better value ends this distance, so that the next low value begins a new one.

    Args:
        cluster: The view of the up-call.
        job: The id of the job.
        crash_after: Distance in the experiment's unit, at least 1.

    Returns:
        False if the experiment has no kill threshold, or the job has not reported the metric yet.
    """
    experiment = cluster.experiment
    threshold = experiment.kill_threshold
    if threshold is None:
        return False
    learned = False
    fell: int | None = None  # position of the first of the latest low values
    last, low = 0, experiment.rated(threshold)
    for last, value in cluster.ratings(job).items():
        if value > low:
            learned, fell = True, None
        elif fell is None:
            fell = last
    return fell is not None and (not learned or last - fell >= crash_after)
