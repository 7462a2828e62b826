"""Write the constants of `layout` and `launch_buffer` as a C header: `python -m warplens.record.c_header`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warplens.record import barrier_words, launch_buffer, layout
from warplens.record.name_table import MAX_NAME, NAME_BYTES, NAME_MAGIC, NAMES_BYTES

INCLUDE = Path(__file__).resolve().parent.parent / "include"
"""The folder that contains warplens.cuh."""
PATH = INCLUDE / "warplens_layout.h"

_OPENING = """\
// Generated from warplens/record/layout.py and launch_buffer.py by `python -m warplens.record.c_header`; do not edit.
#ifndef WARPLENS_LAYOUT_H
#define WARPLENS_LAYOUT_H
"""


def text() -> str:
    """The text of the header file."""
    values: dict[str, int] = {
        "LAYOUT_VERSION": layout.LAYOUT_VERSION,
        "SLOT_BYTES": layout.SLOT_BYTES,
        "HEADER_BYTES": layout.HEADER_BYTES,
        "REGION_SHIFT": layout.REGION_SHIFT,
        "TAG_SHIFT": layout.TAG_SHIFT,
        "MAX_REGION": layout.MAX_REGION,
        "MAX_TAG": layout.MAX_TAG,
        "MAX_SLOTS": layout.MAX_SLOTS,
        "MAX_WARPS": layout.MAX_WARPS,
        "TRACK_MAGIC": layout.TRACK_MAGIC,
        "BUFFER_MAGIC": launch_buffer.BUFFER_MAGIC,
        "BUFFER_BYTES": launch_buffer.BUFFER_BYTES,
        "NAME_BYTES": NAME_BYTES,
        "MAX_NAME": MAX_NAME,
        "NAMES_BYTES": NAMES_BYTES,
        "MODE_STOP": launch_buffer.FULL_MODES.index("stop"),
        "MODE_RING": launch_buffer.FULL_MODES.index("ring"),
        "SPARE": launch_buffer.SPARE,
        "DIRECT_SPARE": launch_buffer.DIRECT_SPARE,
    }
    values |= {f"REFUSED_{name.upper()}": number for number, name in enumerate(launch_buffer.REFUSALS) if name}
    values |= {f"KIND_{kind.name}": kind.value for kind in layout.Kind}
    values |= {f"STATE_{state.name}": state.value for state in layout.TrackState}
    values |= {f"VALUE_{kind.name}": kind.value for kind in layout.ValueType}
    values |= {f"BARRIER_{operation.name}": operation.value for operation in barrier_words.Operation}
    values |= {
        "BARRIER_OPERATION_SHIFT": barrier_words.OPERATION_SHIFT,
        "BARRIER_PARITY_SHIFT": barrier_words.PARITY_SHIFT,
    }
    values |= _offsets("TRACK", layout.HEADER) | _offsets("BUFFER", launch_buffer.BUFFER)
    lines = [f"#define WL_{name} {value}u" for name, value in values.items()]
    lines.append(f"#define WL_NAME_MAGIC {NAME_MAGIC:#x}ull")
    return _OPENING + "\n".join(lines) + "\n#endif\n"


def _offsets(prefix: str, dtype: np.dtype[np.void]) -> dict[str, int]:
    assert dtype.fields is not None
    return {f"{prefix}_{name.upper()}_AT": int(field[1]) for name, field in dtype.fields.items()}


if __name__ == "__main__":
    PATH.write_text(text())
    print(PATH)
