"""Verify the regions of recorded kernels in their machine code, once a profile is over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from warplens.driver.jit_linker import link_with_lines
from warplens.driver.libcuda import driver
from warplens.launch.assembled_code import kept_cubin
from warplens.record.capture import MACHINE_CODE, Launch
from warplens.sass.machine_code import MachineCode, verify_code
from warplens.sass.numbered_lines import numbered_ptx
from warplens.sass.verified_regions import KernelVerification

MAX_SECONDS = 10.0
"""How long the end of a profile may take for this; kernels that are left are not verified, and the trace says so."""
MAX_BYTES = 512 << 10
"""What a trace keeps of all kernels together, as JSON."""
_THREADS = 4

Codes = Mapping[str, tuple[str, MachineCode]]
"""By digest, a kernel's name and its machine code."""
_DRIVER = "the driver's compiler, run again on the same PTX"
_collecting: list[dict[str, tuple[str, MachineCode]]] = []
_known: dict[str, KernelVerification] = {}
"""What was verified in this process, by digest."""


def is_wanted(option: bool) -> bool:
    """Whether to verify: the option `verify=`, unless WARPLENS_VERIFY=0 switches it off."""
    return option and os.environ.get("WARPLENS_VERIFY", "") != "0"


@contextmanager
def collected_codes() -> Iterator[dict[str, tuple[str, MachineCode]]]:
    """What every profile that ends inside the block has recorded, for a program that profiles itself."""
    codes: dict[str, tuple[str, MachineCode]] = {}
    _collecting.append(codes)
    try:
        yield codes
    finally:
        _collecting.remove(codes)


def verifier(codes: Codes, launches: Sequence[Launch]) -> Callable[[], dict[str, Any]]:
    """A function that verifies the code of `launches`, as the trace keeps it; the most launched kernels come first."""
    used: dict[str, int] = {}
    for launch in launches:
        digest = str(launch.extra.get(MACHINE_CODE, ""))
        if digest in codes:
            used[digest] = used.get(digest, 0) + 1
    for collecting in _collecting:
        collecting.update((digest, codes[digest]) for digest in used)
    order = sorted(used, key=lambda digest: -used[digest])
    return lambda: bounded(verify_all({digest: codes[digest] for digest in order}))


def verify_all(codes: Codes, seconds: float = MAX_SECONDS) -> dict[str, KernelVerification]:
    """Verify every kernel, or as many as the time allows."""
    deadline = time.monotonic() + seconds
    pool = ThreadPoolExecutor(_THREADS, "warplens-verify")
    tasks: dict[str, Future[KernelVerification]] = {}
    try:
        for digest, (kernel, code) in codes.items():
            if digest not in _known and time.monotonic() < deadline:
                tasks[digest] = pool.submit(verify_code, _linked(code), kernel)
        for digest, task in tasks.items():
            try:
                _known[digest] = task.result(max(deadline - time.monotonic(), 0.001))
            except Late:
                continue
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    late = f"not verified within {seconds:g} s; `warplens verify` on the program has more time"
    return {
        digest: replace(_known[digest], kernel=kernel) if digest in _known else KernelVerification(kernel, problem=late)
        for digest, (kernel, _) in codes.items()
    }


def _linked(code: MachineCode) -> MachineCode:
    """The code with the cubin of the driver's compiler where it has none. Only this thread has the GPU's context."""
    if code.cubin is not None or not code.ptx:
        return code
    cubin = kept_cubin(code.ptx)
    if cubin is not None:
        return replace(code, cubin=cubin, numbered=True)
    try:
        cubin = link_with_lines(driver(), numbered_ptx(code.ptx))
        return replace(code, cubin=cubin, numbered=True, source=_DRIVER)
    except Exception:  # ptxas is asked then
        return code


def bounded(found: Mapping[str, KernelVerification]) -> dict[str, Any]:
    """The results as JSON, without details where they are too large together."""
    documents = {digest: one.to_json() for digest, one in found.items()}
    for drop in (("moved", "instances"), ("ranges", "self_ranges", "moved_in_counts", "moved_out_counts", "counts")):
        if len(json.dumps(documents)) <= MAX_BYTES:
            return documents
        for document in documents.values():
            for region in document["regions"]:
                for name in drop:
                    region[name] = type(region[name])()
    if len(json.dumps(documents)) <= MAX_BYTES:
        return documents
    short = "its verification is too large for the trace"
    return {digest: KernelVerification(one.kernel, problem=short).to_json() for digest, one in found.items()}
