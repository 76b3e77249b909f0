"""What a call can end with beside success, each as an exception of its own."""


class FenceguardError(Exception):
    """Of every kind below. What is not known is None; token and highest are numbers, retry_after is in seconds."""

    resource = token = highest = retry_after = problem = status = found = reason = None

    def __init__(self, message, **facts):
        super().__init__(message)
        vars(self).update(facts)


class Refused(FenceguardError):
    """The claim was refused and nothing was written: undo, take the lock again, start over from the read."""


class Stale(Refused):
    """A newer token was seen (highest), the fence was closed, or an own later write overtook this one."""


class Conflict(Refused):
    """Another holder uses the same token: the token source issued it twice."""


class Held(FenceguardError):
    """Another holder has the lock."""


class Lost(FenceguardError):
    """The lease ended, says the server."""


class Unavailable(FenceguardError):
    """Nothing was written: there is no server, or it says so."""


class Unknown(FenceguardError):
    """It may or may not have taken effect, and was not repeated. Read before you decide."""


class Misdirected(FenceguardError):
    """Something else answered: found is 'data' or 'control' (the wrong side), or 'other', which judged nothing."""


class Unauthorized(FenceguardError):
    """The bearer token is missing, wrong, expired or not enough."""


class Rejected(FenceguardError):
    """A clear no of another kind, with nothing written: problem is its name, status the answer's."""
