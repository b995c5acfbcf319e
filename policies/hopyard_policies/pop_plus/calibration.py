"""Calibrates predicted probabilities and the worth of new configurations from the jobs of the experiment so far.

The *worth* of a second of a job is the probability of reaching the target that a second of its slot time gains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from hopyard_policies.pop_plus.expected_gain import Prospect

PRIOR: Final = 0.1
"""Prior probability that a configuration reaches the target."""
DOUBT: Final = 0.5
"""Weight of the prior in the calibration: added to the sums of the predicted and of the confirmed probabilities."""
REMEMBERED: Final = 200
"""Maximum number of ended jobs whose predictions are stored, the latest ones."""


@dataclass(slots=True)
class JobPredictions:
    """The predictions for one job.

    The worth of a second of a job is the probability of reaching the target that a second of its slot time gains.

    Attributes:
        before: Seconds of training before the first prediction.
        first: The worth of a second of the job at the first prediction, not calibrated.
        prospect: The probability that further training reaches the target, and the expected seconds of that training, by the
            latest prediction.
        full: Seconds to train the job from the beginning to its end.
        since: Seconds of training from the first to the latest prediction.
        chances: The predicted probability that the job reaches the target, at each prediction.
        ended: Whether the job ended without reaching the target.
    """

    before: float
    first: float
    prospect: Prospect
    full: float
    since: float = 0.0
    chances: list[float] = field(default_factory=list)
    ended: bool = False


class PredictionHistory:
    """Stores the predictions for all jobs and their outcomes, and calibrates the worth of a second from them.

    The worth of a second of a job is the probability of reaching the target that a second of its slot time gains.

    Attributes:
        tracks: The predictions by job id; of the jobs that have ended, only the latest `REMEMBERED` are stored.
    """

    def __init__(self) -> None:
        self.tracks: dict[str, JobPredictions] = {}
        self._trust: list[float] = []
        self._fresh: float | None = None

    def look(self, job: str, prospect: Prospect, trained: float, full: float) -> None:
        """Add a prediction for a job.

        Args:
            job: The job's id.
            prospect: The prospect that follows from the prediction.
            trained: Seconds that the job has trained.
            full: Seconds to train it from the beginning to its end.
        """
        track = self.tracks.get(job)
        if track is None:
            track = self.tracks[job] = JobPredictions(trained, prospect.worth(), prospect, full)
        track.since, track.full, track.prospect = max(trained - track.before, 0.0), full, prospect
        track.chances.append(prospect.chance)
        self._fresh = None

    def end(self, job: str) -> None:
        """Record that a job ended without reaching the target; do nothing if no prediction for it is stored."""
        track = self.tracks.get(job)
        if track is None or track.ended:
            return
        track.ended = True
        track.prospect = Prospect(0.0, 0.0)
        over = [name for name, one in self.tracks.items() if one.ended]
        for name in over[:-REMEMBERED]:
            del self.tracks[name]
        self._fresh = None

    def known(self, job: str) -> bool:
        """Return whether any prediction for a job is stored."""
        return job in self.tracks

    def worth(self, job: str, lead: float = 0.0) -> float:
        """Return the calibrated worth of a second of a job: the probability of reaching the target that a second of slot time gains.

        Args:
            job: The id of a job with a stored prediction.
            lead: Seconds of slot time before its training continues, such as for loading.
        """
        self._settle()
        track = self.tracks[job]
        return self._trusted(track) * track.prospect.worth(lead)

    def fresh(self) -> float:
        """Return the worth of a second of a new configuration; infinite before the first prediction.

        The worth is the probability of reaching the target that a second of its slot time gains. It is assumed that a new
        configuration is trained to its first prediction, and further only if the worth predicted then is at least a threshold. The
        threshold is chosen so that the result is largest; the worths at the first predictions of all jobs are tried. The estimate
        includes one fictitious job that is trained to its end and reaches the target with the probability `PRIOR`.
        """
        return self._settle()

    def _settle(self) -> float:
        """Recompute the calibration if there are new predictions; return the worth of a second of a new configuration."""
        if self._fresh is not None:
            return self._fresh
        tracks = self.tracks.values()
        self._trust = []
        for index in range(max((len(track.chances) for track in tracks), default=0)):
            followed = [
                track
                for track in tracks
                if len(track.chances) > index + 1 or (track.ended and len(track.chances) > index)
            ]
            foretold = math.fsum(track.chances[index] for track in followed)
            came = math.fsum(0.0 if track.ended else track.chances[-1] for track in followed)
            self._trust.append(min((DOUBT + came) / (DOUBT + foretold), 1.0))
        if not tracks:
            self._fresh = math.inf
            return self._fresh
        chance = PRIOR
        seconds = math.fsum(track.full for track in tracks) / len(tracks) + math.fsum(track.before for track in tracks)
        best = Prospect(chance, seconds).worth()
        for track in sorted(tracks, key=lambda track: -track.first):
            chance += self._trusted(track) * track.prospect.chance
            seconds += track.since + track.prospect.seconds
            best = max(best, Prospect(chance, seconds).worth())
        self._fresh = best
        return best

    def _trusted(self, track: JobPredictions) -> float:
        return self._trust[len(track.chances) - 1]
