"""What an experiment's jobs so far say of chances that are foretold, and of configurations that nobody has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from hopyard_policies.pop_plus.expected_gain import Prospect

PRIOR: Final = 0.1
"""The chance of a configuration before any is known: targets are what one in ten reaches."""
DOUBT: Final = 0.5
"""So much chance, foretold and come true, is taken in beside what jobs were foretold."""
REMEMBERED: Final = 200
"""Jobs that have ended are remembered up to so many, the latest."""


@dataclass(slots=True)
class Track:
    """A job, look by look.

    Attributes:
        chances: What was foretold at each.
        first: What a second was worth at the first.
        before: Seconds of training up to the first look.
        since: And from there to the latest.
        full: Seconds that it takes to train it from the beginning to its end.
        prospect: As foretold at the latest.
        ended: Whether it is over, the target not reached.
    """

    before: float
    first: float
    prospect: Prospect
    full: float
    since: float = 0.0
    chances: list[float] = field(default_factory=list)
    ended: bool = False


class Experience:
    """Looks at jobs, and what followed from them."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}
        self._trust: list[float] = []
        self._fresh: float | None = None

    def look(self, job: str, prospect: Prospect, trained: float, full: float) -> None:
        """A job was looked at.

        Args:
            job: Its id.
            prospect: What is foretold of it.
            trained: Seconds it has trained.
            full: Seconds that it takes to train it from the beginning to its end.
        """
        track = self.tracks.get(job)
        if track is None:
            track = self.tracks[job] = Track(trained, prospect.worth(), prospect, full)
        track.since, track.full, track.prospect = max(trained - track.before, 0.0), full, prospect
        track.chances.append(prospect.chance)
        self._fresh = None

    def end(self, job: str) -> None:
        """A job is over without the target."""
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
        """Whether a job was looked at."""
        return job in self.tracks

    def worth(self, job: str, lead: float = 0.0) -> float:
        """What a second of a job that was looked at is worth, its chance taken at what such chances have been worth."""
        self._settle()
        track = self.tracks[job]
        return self._trusted(track) * track.prospect.worth(lead)

    def fresh(self) -> float:
        """What a second of a configuration is worth that nobody has seen.

        It is looked at, and trained on only if its first look is as good as the best ones so far: of all lines that can be drawn
        between first looks, the one that was worth most. Beside them one more job, with the prior chance, is trained to its end.
        """
        return self._settle()

    def _settle(self) -> float:
        """Works out, once after each look, what chances and new configurations are worth; returns the latter."""
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

    def _trusted(self, track: Track) -> float:
        return self._trust[len(track.chances) - 1]
