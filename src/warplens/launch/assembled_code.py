"""Woven PTX that the driver's compiler assembles: with a line table, and kept, so that what ran is what is verified."""

from __future__ import annotations

from collections import OrderedDict

from warplens.driver.jit_linker import link_with_lines
from warplens.driver.libcuda import Driver
from warplens.sass.numbered_lines import numbered_ptx

_MOST_KEPT = 256
_kept: OrderedDict[str, bytes] = OrderedDict()


def assembled(lib: Driver, text: str, original: str = "") -> bytes:
    """The image to load for woven `text`: its cubin or, where linking fails or changes it, the text itself.

    The driver gives no access to what it makes of PTX that is loaded, and another assembly of the same PTX may give
    other machine code. `original` is the text whose lines count, if `text` was changed for an older driver.
    """
    try:
        cubin = link_with_lines(lib, numbered_ptx(text))
    except Exception:  # the driver then assembles what it loads, and the code is verified by another assembly
        return text.encode() + b"\0"
    _kept[original or text] = cubin
    if len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return cubin


def kept_cubin(text: str) -> bytes | None:
    """The cubin that was loaded for a woven text."""
    return _kept.get(text)
