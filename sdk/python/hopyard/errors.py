"""The errors of Hopyard, classified by what the caller should do.

    HopyardError
      InvalidInput          the argument or file is wrong: correct it; a retry fails in the same way
      NotFound              nothing has this id or name
      AlreadyExists         something else has this id or name
      Conflict              the current state does not allow the operation: query the state, then decide
        StaleEpoch          a newer writer has taken over: stop writing permanently
      Aborted               a concurrent change prevented the operation: read again, then start over
      Exhausted             a limit is reached: slow down, or try elsewhere
      Unavailable           not reachable at the moment: retry with backoff
      TimedOut              no answer in time; the operation may have been executed or not
      DataLoss              bytes do not match their hash: get another copy
      PermissionDenied      the caller is known, but not allowed to do this
        Unauthenticated     the caller is unknown: send credentials
      Unsupported           the server, the installation or the kind of data does not support the operation
      Internal              a bug in Hopyard; the service's log has the traceback

Services raise these errors. `hopyard._net.server` converts them to gRPC status codes, and a channel of `hopyard._net.rpc` converts
the codes back to the same exceptions with the same message. Messages name the place, what was found and what is allowed.
"""

from __future__ import annotations

import errno


class HopyardError(Exception):
    """Base class of all errors that a service or a client of Hopyard raises for a caller to handle."""


class InvalidInput(HopyardError, ValueError):
    """Raised when an argument or a file is wrong and must be corrected. A retry fails in the same way."""


class NotFound(HopyardError, LookupError):
    """Raised when nothing has the given id or name."""


class AlreadyExists(HopyardError):
    """Raised when the id, name or path to create is used by something else."""


class Conflict(HopyardError):
    """Raised when the current state does not allow the operation. Query the state, then decide."""


class StaleEpoch(Conflict):
    """Raised when a newer scheduler has taken over (see the epoch in the glossary). The caller must stop writing permanently."""


class Aborted(HopyardError):
    """Raised when a concurrent change prevented the operation. Read the state again, then start over."""


class Exhausted(HopyardError):
    """Raised when a limit is reached. Slow down, or try elsewhere."""


class Unavailable(HopyardError):
    """Raised when a service is not reachable at the moment. Retry with backoff (`hopyard._net.rpc.retry`)."""


class TimedOut(HopyardError, TimeoutError):
    """Raised when there is no answer within the deadline. The operation may have been executed or not."""


class DataLoss(HopyardError):
    """Raised when bytes do not match their hash. Get another copy."""


class PermissionDenied(HopyardError):
    """Raised when the caller is known, but not allowed to perform the operation."""


class Unauthenticated(PermissionDenied):
    """Raised when the service does not know the caller, because credentials are missing or wrong."""


class Unsupported(HopyardError):
    """Raised when the server, the installation or the kind of data does not support the operation."""


class Internal(HopyardError):
    """Raised when a bug in Hopyard was found. The log of the service has the traceback."""


def os_error_text(error: OSError) -> str:
    """Return the message of an operating system error in one line: the file if known, the problem, and advice if a disk is full."""
    place = f"{error.filename}: " if error.filename else ""
    hint = "; make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{place}{error.strerror or error}{hint}"
