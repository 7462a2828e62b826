"""A trace of one launch of kernel `k`, whose regions are verified in real machine code."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.builders import Span, make_trace
from warplens.record.capture import MACHINE_CODE
from warplens.sass.machine_code import MachineCode, verify_code
from warplens.sass.verified_regions import KernelVerification
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo, Meta

SPANS = (("load", 0, 10), ("math", 10, 5))


@functools.cache
def verified(code: MachineCode) -> KernelVerification:
    """The verification of code, which takes a disassembler, once for all tests."""
    return verify_code(code, "k")


def traced(
    code: MachineCode,
    spans: Sequence[tuple[str, int, int]] = SPANS,
    *,
    extra: Mapping[str, Any] | None = None,
    cost: Mapping[str, float] | None = None,
) -> Trace:
    """A trace whose launch ran `code`; `spans` are regions with begin and duration in cycles."""
    found = verified(code)
    info = LaunchInfo(
        0, "k", block=(128, 1, 1), cost=cost or {}, extra={MACHINE_CODE: code.digest, **(extra or {})}, busy_cycles=100
    )
    devices = {"0": {"name": "NVIDIA H200", "capability": "9.0", "sm_count": 132, "index": 0}}
    meta = Meta(launches=(info,), devices=devices, verification={code.digest: found.to_json()})
    return make_trace([Span(*one, kernel="k", cycles=one[2]) for one in spans], meta=meta)
