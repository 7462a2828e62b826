"""How time grows with size: asked of the processor's time, so that what else the machine does has no say."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 5


def growth(work: Callable[[str], object], small: str, large: str, tries: int = _TRIES) -> float:
    """How many times as long `work` takes for the larger text, fastest try against fastest.

    The two take turns, so that a moment in which the processor is slow meets both.
    """
    fastest = {small: float("inf"), large: float("inf")}
    for _ in range(tries):
        for text in fastest:
            began = time.process_time()
            work(text)
            fastest[text] = min(fastest[text], time.process_time() - began)
    return fastest[large] / fastest[small]
