"""The running profile as front ends see it: `active()` returns it, `attach()` takes part in it."""

from warplens.session.session import Session
from warplens.session.stack import StartFrontEnd, active, attach

__all__ = ["Session", "StartFrontEnd", "active", "attach"]
