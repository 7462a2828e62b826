"""The first launch of each stream that has not ended, and for how long it has been the first."""

from __future__ import annotations

from collections.abc import Sequence

from warplens.launch.collected_run import PendingLaunch
from warplens.launch.woven import WovenLaunch


class StreamHeads:
    """Only the first launch of a stream can hang: the others wait for it. Not for several threads at once."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[WovenLaunch, float]] = {}
        self._done = 0
        """So many launches at the beginning need not be asked again."""

    def update(self, launches: Sequence[tuple[PendingLaunch, int]], now: float) -> list[tuple[WovenLaunch, float]]:
        """The first unfinished launch of each stream, and for how many seconds it was seen to be that."""
        while self._done < len(launches) and _is_home(launches[self._done][0]):
            self._done += 1
        heads: dict[tuple[int, int], WovenLaunch] = {}
        for pending, _ in launches[self._done :]:
            if isinstance(pending, WovenLaunch):
                stream = id(pending.engine), pending.stream
                if stream not in heads and pending.in_flight:
                    heads[stream] = pending
        self._since = {id(one): (one, self._since.get(id(one), (one, now))[1]) for one in heads.values()}
        return [(one, now - since) for one, since in self._since.values()]


def _is_home(pending: PendingLaunch) -> bool:
    return not isinstance(pending, WovenLaunch) or pending.landed
