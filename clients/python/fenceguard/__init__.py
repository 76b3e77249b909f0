"""fenceguard: locks whose writes are fenced. The blocking client; fenceguard.aio is the one for asyncio."""

from .client import Client, fenced, run
from .core import Lease
from .outcomes import (Conflict, FenceguardError, Held, Lost, Misdirected, Refused, Rejected, Stale, Unauthorized,
                       Unavailable, Unknown)

__all__ = ["Client", "Conflict", "FenceguardError", "Held", "Lease", "Lost", "Misdirected", "Refused", "Rejected",
           "Stale", "Unauthorized", "Unavailable", "Unknown", "fenced", "run"]
