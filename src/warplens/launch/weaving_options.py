"""What a profile's options ask of the weaver."""

from __future__ import annotations

from warplens.options import DelayOptions, Options
from warplens.weave.weaving import Selection, Weaving, select_blocks

DEFAULT_RING = 256
"""Latest records of a warp that aggregate mode keeps with full='ring', unless records_per_warp says how many."""


def weaving(options: Options) -> Weaving:
    """How to weave, and which warps of which blocks record."""
    select = Selection(
        granularity=options.granularity,
        warps=None if options.warps is None else tuple(options.warps),
        sms=None if options.sms is None else tuple(options.sms),
        **select_blocks(options.blocks),  # type: ignore[arg-type]
    )
    delay = options.delay if isinstance(options, DelayOptions) else None
    # A record that waits in a register is not there when the kernel hangs, or when somebody looks.
    store = "now" if options.copies_while_running else options.store
    aggregate, full = options.mode == "aggregate", options.full
    ring = (options.records_per_warp or DEFAULT_RING) if aggregate and full == "ring" else 0
    return Weaving(
        full="stop" if aggregate else full,
        clock=options.clock,
        store=store,
        mode=options.mode,
        ring=ring,
        select=select,
        delay=delay,
        between=options.marks.covers_gaps,
    )
