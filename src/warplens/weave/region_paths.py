"""The regions that are open at each mark, followed through all paths of a function.

A begin opens a region inside those that are open; an end closes the innermost open region of its name. A mark at which
paths with different open regions meet has none that could be named.
"""

from __future__ import annotations

from collections.abc import Sequence

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.syntax import PtxError
from warplens.record.layout import Kind
from warplens.weave.mark_sites import MarkSite

RegionPath = tuple[str, ...]
"""The names of nested regions, the outermost first."""
_Open = tuple[RegionPath, ...]


def region_paths(flow: ControlFlow, sites: Sequence[MarkSite]) -> dict[int, RegionPath]:
    """The path of the region that each begin opens and each end closes, and of each other mark, by `id` of its site.

    An end that closes nothing has none. Raises a PtxError at a mark whose path differs by how it is reached.
    """
    in_block: dict[int, list[MarkSite]] = {}
    for site in sites:
        in_block.setdefault(flow.block_of(site.position.node) or 0, []).append(site)
    before: dict[int, _Open | None] = {0: ()}
    """The open regions at each block's start; None where they differ."""
    work = [0]
    while work:
        number = work.pop()
        opened = before[number]
        for site in in_block.get(number, ()):
            opened = None if opened is None else _step(opened, site)[0]
        for following in flow.blocks[number].successors:
            known = before.get(following, opened)
            merged = opened if known == opened else None
            if following not in before or before[following] != merged:
                before[following] = merged
                work.append(following)
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
