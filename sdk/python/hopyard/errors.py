"""Hopyard's errors, classed by what the caller should do.

    HopyardError
      InvalidInput          mend what was sent (the file, the argument); sending it again fails alike
      NotFound              there is nothing under that name: give up on it
      AlreadyExists         the name is taken, by something else than what was sent
      Conflict              the present state does not allow it: look at the state, then decide
        StaleEpoch          a newer writer has taken over: stop writing for good
      Aborted               somebody was faster: read again, then start over
      Exhausted             a limit is reached: slow down, or try elsewhere
      Unavailable           not reachable just now: try the same again, with backoff
      TimedOut              no answer in time; it may have been done or not
      DataLoss              bytes are not what their hash promises: get another copy
      PermissionDenied      known, but not allowed
        Unauthenticated     not known at all: show who you are
      Unsupported           the other side does not have this call: versions differ
      Internal              a bug in Hopyard; the service's log has the traceback

Services raise them, `hopyard._net.server` turns them into gRPC status codes, and a channel of `hopyard._net.rpc` turns those
back into the same exceptions with the same message. Messages name the place, what was found and what is allowed.
"""

from __future__ import annotations

import errno


class HopyardError(Exception):
    """Root of all errors that cross a service's border."""


class InvalidInput(HopyardError, ValueError):
    """What was sent is wrong and has to be mended; sending it again fails alike."""


class NotFound(HopyardError, LookupError):
    """There is nothing under that name."""


class AlreadyExists(HopyardError):
    """The name is taken by something else than what was sent."""


class Conflict(HopyardError):
    """The present state does not allow it: look at the state, then decide."""


class StaleEpoch(Conflict):
    """A newer writer has taken over: stop writing for good."""


class Aborted(HopyardError):
    """Somebody was faster: read again, then start over."""


class Exhausted(HopyardError):
    """A limit is reached: slow down, or try elsewhere."""


class Unavailable(HopyardError):
    """Not reachable just now: try the same again, with backoff (`hopyard._net.rpc.retry`)."""


class TimedOut(HopyardError, TimeoutError):
    """No answer within the deadline; it may have been done or not."""


class DataLoss(HopyardError):
    """Bytes are not what their hash promises: get another copy."""


class PermissionDenied(HopyardError):
    """The caller is known, but not allowed to do this."""


class Unauthenticated(PermissionDenied):
    """The caller is not known."""


class Unsupported(HopyardError):
    """The other side does not have this call."""


class Internal(HopyardError):
    """A bug in Hopyard; the service's log has the traceback."""


def os_error_text(error: OSError) -> str:
    """An operating system's error in one line: which file, what is the matter, and what to do about a full disk."""
    place = f"{error.filename}: " if error.filename else ""
    hint = "; make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{place}{error.strerror or error}{hint}"
