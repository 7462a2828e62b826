"""The verification at the end of a profile: bounded in time and size, and never the program's problem."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.builders import make_trace
from tests.support.ptx_kernels import HEAD
from tests.support.sass_kernels import HOISTED, code_of, needs_tools
from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.launch import assembled_code
from warplens.launch.collected_run import CollectedRun
from warplens.profiling import region_check
from warplens.record.capture import MACHINE_CODE, Launch
from warplens.record.layout import track_stride
from warplens.sass.machine_code import AS_RUN, MachineCode
from warplens.sass.numbered_lines import numbered_ptx
from warplens.sass.verified_regions import KernelVerification, MovedInstruction, RegionCode


def launch(digest: str = "", kernel: str = "k") -> Launch:
    raw = np.zeros(track_stride(1), np.uint8)
    return Launch(kernel, (1, 1, 1), (32, 1, 1), {}, 1, raw, extra={MACHINE_CODE: digest} if digest else {})


class Pending:
    """A launch that has come home, with its machine code."""

    def __init__(self, code: MachineCode | None) -> None:
        self.machine_code = code

    def collect(self) -> Launch:
        return launch()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_check, "_known", {})


def test_a_collected_launch_names_its_machine_code() -> None:
    run, code = CollectedRun(), MachineCode("k", "text", b"cubin")
    run.add(Pending(code))
    run.add(Pending(None))
    found = [made.extra for _, made in run.collect()[0]]
    assert found[0][MACHINE_CODE] == code.digest
    assert MACHINE_CODE not in found[1]
    assert run.codes == {code.digest: ("k", code)}


@needs_tools
def test_only_code_that_was_launched_is_verified_and_once() -> None:
    used, unused = code_of(HOISTED), MachineCode("other", "x")
    codes = {one.digest: (one.symbol, one) for one in (used, unused)}
    found = region_check.verifier(codes, [launch(used.digest), launch(used.digest), launch()])()
    assert list(found) == [used.digest]
    assert KernelVerification.from_json(found[used.digest])["load"].flag
    again = region_check.verify_all({used.digest: ("another name", replace(used, cubin=None, ptx=""))})
    assert again[used.digest].kernel == "another name"  # known by its digest, not verified again
    assert again[used.digest]["load"].flag


def test_a_slow_disassembler_costs_the_end_of_a_profile_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def slow(code: MachineCode, kernel: str) -> KernelVerification:
        if code.symbol == "slow":
            over.wait(60)
        return KernelVerification(kernel)

    monkeypatch.setattr(region_check, "verify_code", slow)
    codes = {"a": ("fast", MachineCode("fast")), "b": ("slow", MachineCode("slow"))}
    start = time.monotonic()
    found = region_check.verify_all(codes, seconds=0.1)
    assert time.monotonic() - start < 30, "little more than 0.1 s on a machine that is not busy"
    over.set()
    assert found["a"].problem == ""
    assert found["b"].problem.startswith("not verified within 0.1 s")


def test_code_of_the_driver_is_assembled_by_the_driver_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[MachineCode] = []
    monkeypatch.setattr(region_check, "driver", lambda: "the driver")
    monkeypatch.setattr(region_check, "link_with_lines", lambda lib, ptx: f"{lib}: {ptx}".encode())
    monkeypatch.setattr(region_check, "verify_code", lambda code, name: seen.append(code) or KernelVerification(name))
    code = MachineCode("k", HOISTED)
    region_check.verify_all({code.digest: ("k", code)})
    assert seen[0].cubin == f"the driver: {numbered_ptx(HOISTED)}".encode()
    assert seen[0].numbered
    assert seen[0].ptx == HOISTED
    assert seen[0].source == "the driver's compiler, run again on the same PTX"


def test_what_a_trace_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tuple(MovedInstruction(at, "x" * 50, "integer", "inside") for at in range(8))
    regions = tuple(RegionCode(f"r{at}", 1, 0, 0, 0, {"fp32": 1}, moved=moved, ranges=((0, 16),)) for at in range(50))
    found = {"a": KernelVerification("k", regions)}
    whole = region_check.bounded(found)
    assert KernelVerification.from_json(whole["a"]).regions == regions
    sizes: list[Any] = []
    for limit in (20_000, 9_000, 500):
        monkeypatch.setattr(region_check, "MAX_BYTES", limit)
        kept = region_check.bounded(found)
        sizes.append(len(json.dumps(kept)))
        assert sizes[-1] <= limit
    assert KernelVerification.from_json(kept["a"]).problem == "its verification is too large for the trace"
    monkeypatch.setattr(region_check, "MAX_BYTES", 20_000)
    short = KernelVerification.from_json(region_check.bounded(found)["a"])
    assert (short.regions[0].purity, short.regions[0].moved) == (1.0, ())


def test_a_trace_is_verified_when_it_is_saved_and_not_before(tmp_path: Path) -> None:
    trace = make_trace([("load", 0, 10)])
    calls = []
    trace.verifier = lambda: calls.append(1) or {"x": KernelVerification("k", problem="because").to_json()}
    trace.stats()
    assert calls == []
    trace.save(tmp_path / "t.warplens")
    assert calls == [1]
    assert trace.verify()["x"].problem == "because"
    assert calls == [1]


@pytest.mark.parametrize(("option", "variable", "wanted"), [(True, "", True), (False, "", False), (True, "0", False)])
def test_a_switch_turns_it_off(option: bool, variable: str, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS_VERIFY", variable)
    assert region_check.is_wanted(option) is wanted


def test_the_cubin_that_was_loaded_is_the_one_that_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembled_code, "link_with_lines", lambda lib, ptx: b"cubin of " + ptx.encode())
    text = HEAD + ".visible .entry k()\n{\n  ret;\n}\n"
    image = assembled_code.assembled(Driver.__new__(Driver), text)
    assert image.startswith(b"cubin of")
    code = region_check._linked(MachineCode("k", text))
    assert (code.cubin, code.numbered, code.source) == (image, True, AS_RUN)


def test_where_the_driver_cannot_link_it_assembles_what_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lib: Driver, ptx: str) -> bytes:
        raise WarplensError("cuLinkCreate_v2 is missing")

    monkeypatch.setattr(assembled_code, "link_with_lines", refuse)
    text = HEAD + ".visible .entry never_linked()\n{\n  ret;\n}\n"
    assert assembled_code.assembled(Driver.__new__(Driver), text) == text.encode() + b"\0"
    assert assembled_code.kept_cubin(text) is None
