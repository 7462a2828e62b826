"""The blocks between branches and the places where their paths meet, collected for many branches in linear time."""

from __future__ import annotations

from warplens.ptx.control_flow import ControlFlow


class BlocksBetween:
    """A growing set of blocks: everything between some branches and a postdominator of each.

    Control leaves the blocks between a branch and its postdominator only through the postdominator. So a search that
    comes upon a block that is already in the set continues where control leaves that part of the set.
    """

    def __init__(self, flow: ControlFlow) -> None:
        self.blocks: set[int] = set()
        self._flow = flow
        self._leaves_to: dict[int, int] = {}

    def add(self, branch: int, until: int) -> list[int]:
        """Add the blocks from the successors of `branch` up to its postdominator `until`; return the new ones.

        -1 stands for a place behind the function's end.
        """
        work = list(self._flow.blocks[branch].successors)
        found: list[int] = []
        while work:
            number = self._way_out(work.pop(), until)
            if number != until:
                self.blocks.add(number)
                found.append(number)
                self._leaves_to[number] = until
                work += self._flow.blocks[number].successors
        return found

    def _way_out(self, number: int, until: int) -> int:
        """The first block that is not in the set on the way from `number` to the end; `until` if that comes first."""
        path: list[int] = []
        while number != until and number in self._leaves_to:
            after = self._leaves_to[number]
            if after != until and self._is_beyond(after, until):
                break
            path.append(number)
            number = after
        for one in path:
            self._leaves_to[one] = number
        return until if number in self._leaves_to else number

    def _is_beyond(self, number: int, until: int) -> bool:
        return until >= 0 and (number < 0 or self._flow.postdominators.strictly_dominates(number, until))
