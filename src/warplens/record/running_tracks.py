"""Which warps of a launch still ran when its records were copied: the launch's `extra` keeps this as a short text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from warplens.record.capture import HANG
from warplens.record.layout import MAX_BLOCK, MAX_WARPS
from warplens.wording import number_ranges

_ALL = MAX_BLOCK + 1
_MOST_TRACKS = 1 << 22
"""More tracks than this are not listed one by one: a damaged file may name billions."""


@dataclass(frozen=True)
class HangRecord:
    """A launch that had not ended when its records were copied.

    `running` has the numbers of the warps that had begun and not ended, and the blocks in which these were the ones.
    `ended` and `unstarted` count warps. `now_ns` is the device's globaltimer at the copy, `waited_s` how long the
    launch had been the first of its stream, and `cause` what made warplens look: `watch` or the name of a signal.
    """

    running: Mapping[str, str] = field(default_factory=dict)
    ended: int = 0
    unstarted: int = 0
    now_ns: int = 0
    waited_s: float = 0.0
    cause: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> HangRecord | None:
        """What a launch's `extra` says; None where the launch ended, or where it says something else."""
        found = extra.get(HANG)
        if not isinstance(found, Mapping):
            return None
        usual = vars(cls())
        kinds: dict[str, Any] = {name: (int, float) if name == "waited_s" else type(of) for name, of in usual.items()}
        given = {name: found[name] for name in usual if isinstance(found.get(name), kinds[name])}
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "running": dict(self.running)}

    def tracks(self) -> list[tuple[int, int]]:
        """The block and the warp of each running track."""
        found: list[tuple[int, int]] = []
        for warps, blocks in self.running.items():
            numbers = ranges_in(str(warps), MAX_WARPS)
            for first, last in _spans(str(blocks), MAX_BLOCK):
                if len(found) + (last - first + 1) * len(numbers) > _MOST_TRACKS:
                    return sorted(found)
                found += [(block, warp) for block in range(first, last + 1) for warp in numbers]
        return sorted(found)


def pack_tracks(tracks: Iterable[tuple[int, int]]) -> dict[str, str]:
    """Tracks, each a block and a warp, as `running` keeps them."""
    warps: dict[int, list[int]] = {}
    for block, warp in tracks:
        warps.setdefault(block, []).append(warp)
    blocks: dict[str, list[int]] = {}
    for block, numbers in warps.items():
        blocks.setdefault(number_ranges(numbers, _ALL), []).append(block)
    return {text: number_ranges(numbers, _ALL) for text, numbers in blocks.items()}


def ranges_in(text: str, most: int) -> list[int]:
    """The numbers below `most` in a text such as `0-3, 7`."""
    return [number for first, last in _spans(text, most) for number in range(first, last + 1)]


def _spans(text: str, most: int) -> Iterable[tuple[int, int]]:
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()):
            yield int(first), min(int(last or first), most - 1)
