"""The regions that are open at each mark and each exit, followed through all paths of a function.

A begin opens a region inside those that are open; an end closes the innermost open region of its name. A mark at which
paths with different open regions meet has none that could be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Node
from warplens.record.layout import Kind
from warplens.weave.mark_sites import MarkSite

RegionPath = tuple[str, ...]
"""The names of nested regions, the outermost first."""
_Open = tuple[RegionPath, ...]


def region_paths(flow: ControlFlow, sites: Sequence[MarkSite]) -> dict[int, RegionPath]:
    """The path of the region that each begin opens and each end closes, and of each other mark, by `id` of its site.

    An end that closes nothing has none. Raises a PtxError at a mark whose path differs by how it is reached.
    """
    in_block = _by_block(flow, sites)
    before = _before_blocks(flow, in_block)
    found: dict[int, RegionPath] = {}
    for number, marks in in_block.items():
        opened = before.get(number, ())
        for site in marks:
            if opened is None:
                raise PtxError(
                    site.mark.line,
                    site.mark.name,
                    "which regions are open at this mark depends on the path that leads to it",
                    "use mode='trace', which needs no paths",
                )
            opened, path = _step(opened, site)
            if path:
                found[id(site)] = path
    return found


def open_at(flow: ControlFlow, sites: Sequence[MarkSite], nodes: Sequence[Node]) -> list[_Open | None]:
    """The paths that are open at instructions that end their block; None where that depends on how they are reached."""
    in_block = _by_block(flow, sites)
    before = _before_blocks(flow, in_block)
    found: list[_Open | None] = []
    for node in nodes:
        number = flow.block_of(node) or 0
        found.append(_after(before.get(number, ()), in_block.get(number, ())))
    return found


def open_names(flow: ControlFlow, sites: Sequence[MarkSite]) -> list[tuple[str, ...]]:
    """The regions that are open at the start of each block, the innermost last. Where that depends on the path that
    leads there, those that are open in the text."""
    in_block = _by_block(flow, sites)
    before = _before_blocks(flow, in_block)
    found: list[tuple[str, ...]] = []
    text: _Open = ()
    for number in range(len(flow.blocks)):
        known = before.get(number, ())
        found.append(tuple(path[-1] for path in (text if known is None else known)))
        text = _after(text, in_block.get(number, ())) or ()
    return found


def are_nested(flow: ControlFlow, sites: Sequence[MarkSite]) -> bool:
    """Whether each end closes the region that was opened last."""
    in_block = _by_block(flow, sites)
    before = _before_blocks(flow, in_block)
    for number, marks in in_block.items():
        opened = before.get(number, ())
        for site in marks:
            if opened is None:
                return False
            after, closed = _step(opened, site)
            if site.mark.kind is Kind.END and closed and closed != opened[-1]:
                return False
            opened = after
    return True


def _by_block(flow: ControlFlow, sites: Sequence[MarkSite]) -> dict[int, list[MarkSite]]:
    in_block: dict[int, list[MarkSite]] = {}
    for site in sites:
        in_block.setdefault(flow.block_of(site.position.node) or 0, []).append(site)
    return in_block


def _before_blocks(flow: ControlFlow, in_block: Mapping[int, Sequence[MarkSite]]) -> dict[int, _Open | None]:
    """The open regions at each block's start; None where they differ."""
    before: dict[int, _Open | None] = {0: ()}
    work = [0]
    while work:
        number = work.pop()
        opened = _after(before[number], in_block.get(number, ()))
        for following in flow.blocks[number].successors:
            known = before.get(following, opened)
            merged = opened if known == opened else None
            if following not in before or before[following] != merged:
                before[following] = merged
                work.append(following)
    return before


def _after(opened: _Open | None, marks: Sequence[MarkSite]) -> _Open | None:
    for site in marks:
        opened = None if opened is None else _step(opened, site)[0]
    return opened


def _step(opened: _Open, site: MarkSite) -> tuple[_Open, RegionPath]:
    """The open regions after a mark, and the path of the mark's own region."""
    name, inside = site.mark.name, opened[-1] if opened else ()
    if site.mark.kind is Kind.BEGIN:
        return (*opened, (*inside, name)), (*inside, name)
    if site.mark.kind is not Kind.END:
        return opened, (*inside, name)
    at = next((i for i in range(len(opened) - 1, -1, -1) if opened[i][-1] == name), None)
    if at is None:
        return opened, ()
    return opened[:at] + opened[at + 1 :], opened[at]
