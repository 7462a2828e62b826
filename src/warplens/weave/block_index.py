"""PTX that finds out whether a block records, in few instructions: every block of a launch executes them.

ptxas makes a long sequence of a division by a constant. A number is a multiple of an odd constant if its product with
the constant's inverse (modulo 2^32) is small, and then the product is the quotient. For an even constant the product is
rotated to the right by its number of factors 2 (Granlund and Montgomery, 1994).
"""

from __future__ import annotations

from warplens.weave.weaving import Selection

_WORD = 1 << 32


def linear_index(select: Selection, out: str, first: str, second: str) -> list[str]:
    """Set `out` to the linear index of the block; `first` and `second` are registers to compute with."""
    if select.flat:
        return [f"mov.u32 {out}, %ctaid.x;"]
    return [
        f"mov.u32 {first}, %ctaid.z; mov.u32 {second}, %nctaid.y; mov.u32 {out}, %ctaid.y;",
        f"mad.lo.u32 {out}, {first}, {second}, {out};",
        f"mov.u32 {first}, %nctaid.x; mov.u32 {second}, %ctaid.x;",
        f"mad.lo.u32 {out}, {out}, {first}, {second};",
    ]


def selected_index(select: Selection, out: str, block: str, predicate: str) -> list[str]:
    """Set `out` to the index of `block` among the selected blocks, and clear `predicate` in blocks that are not
    selected."""
    if select.listed is not None:
        places = (
            f"setp.eq.u32 %wl_sel, {block}, {one}; selp.b32 {out}, {place}, {out}, %wl_sel;"
            for place, one in enumerate(select.listed)
        )
        return [
            f"{{ .reg .pred %wl_sel; mov.b32 {out}, -1;",
            *places,
            f"setp.ne.and.s32 {predicate}, {out}, -1, {predicate}; }}",
        ]
    if select.blocks is None:
        return [f"mov.b32 {out}, {block};"]
    start, stop, step = select.blocks
    twos = (step & -step).bit_length() - 1
    inverse = pow(step >> twos, -1, _WORD)
    return [
        f"mad.lo.u32 {out}, {block}, {inverse}, {-start * inverse % _WORD};",
        *[f"shf.r.wrap.b32 {out}, {out}, {out}, {twos};"] * bool(twos),
        # Blocks before the first one wrap around to numbers that are larger than any selected index.
        f"setp.le.and.u32 {predicate}, {out}, {(stop - 1 - start) // step}, {predicate};",
    ]
