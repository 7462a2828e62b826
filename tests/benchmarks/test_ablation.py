"""The ablation benchmark without a GPU: control codes say what they mean, and variants differ where they should."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import ablation
from benchmarks.ablation import Variants, variants, waits_for
from benchmarks.lib import sass
from benchmarks.lib.sass import NONE, READ, STALL, WAITS, WRITE, Instruction, disassemble
from tests.support.cuda_compilers import NVDISASM, needs_nvrtc

ready = pytest.mark.skipif(NVDISASM is None or shutil.which("ptxas") is None, reason="needs ptxas and nvdisasm")
LOOPS = {"marks": 1, "gemm": ablation.GEMMS["mma.sync 128x128x32"]}
FIXED = {"FFMA", "IADD3", "IMAD.MOV.U32", "LOP3.LUT", "SEL", "CS2R.32", "VIADDMNMX.U32", "NOP", "BRA", "EXIT"}
LOAD = re.compile(r"(LDG|LDS|LDSM|LDC|S2R)[.\w]* (R\d+),")


@pytest.fixture(scope="module", params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Variants:
    return variants(LOOPS[request.param])


@functools.cache
def read(cubin: bytes) -> list[Instruction]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.cubin")
        path.write_bytes(cubin)
        return disassemble(path)


@needs_nvrtc
@ready
def test_control_codes_say_what_they_mean(loop: Variants) -> None:
    code = read(loop.cubins["woven"])
    barriers = {barrier for one in code for barrier in range(6) if one.waits(barrier)}
    assert all(any(one.sets(barrier) for one in code) for barrier in barriers), "nothing would end the wait"
    fixed = [one for one in code if re.sub(r"^@!?P\d ", "", one.text).split()[0] in FIXED]
    assert len(fixed) > 5
    assert not any(one.sets(barrier) for one in fixed for barrier in range(6)), "their results need no barrier"
    waited = 0
    for number, one in enumerate(code):
        barrier, load = one.high >> WRITE & 7, LOAD.match(one.text)
        if load and barrier != NONE:
            behind = code[number + 1 :]
            user = next(n for n, other in enumerate(behind) if re.search(rf"\b{load[2]}\b", other.text))
            assert any(other.waits(barrier) for other in behind[: user + 1]), f"{behind[user].text} reads {load[2]}"
            waited += 1
    assert waited > 2
    assert all(1 <= one.stall <= 15 for one in code if "CS2R" in one.text)


@needs_nvrtc
@ready
def test_nops_stand_for_what_was_woven_in_and_nothing_else_changes(loop: Variants) -> None:
    woven = read(loop.cubins["woven"])
    said = [text for text in loop.code["woven in"] if text != "NOP"]
    for name, gone in (("nothing", said), ("no store", [text for text in said if "STG" in text])):
        pairs = list(zip(woven, read(loop.cubins[name]), strict=True))
        changed = [(old, new) for old, new in pairs if (old.low, old.high) != (new.low, new.high)]
        assert [old.text for old, _ in changed if old.text != "NOP"] == gone
        assert {new.text for _, new in changed} == {"NOP"}
        assert all(new.stall == old.stall and new.high >> WAITS == old.high >> WAITS for old, new in changed)
        assert all(new.sets(NONE) and new.reads == NONE for _, new in changed)
        different = [n for n, (a, b) in enumerate(zip(loop.cubins["woven"], loop.cubins[name], strict=True)) if a != b]
        assert different[-1] - different[0] < 16 * len(woven), "outside of the code all bytes stay"
    body = sass.hot_loop(woven)
    left = [one.text for one in read(loop.cubins["nothing"]) if body[0].at <= one.at <= body[-1].at]
    assert sum("SR_CLOCK" in one.text for one in body) == sum("SR_CLOCK" in text for text in said) > 1
    assert not any("SR_CLOCK" in text or "STG" in text for text in left), left
    assert sum("MMA" in text for text in left) == sum("MMA" in one.text for one in body)


@needs_nvrtc
@ready
def test_the_floor_reads_the_clock_where_marks_do_and_stores_nothing() -> None:
    gemm = variants(LOOPS["gemm"])
    plain, floor, woven = (sass.hot_loop(read(gemm.cubins[name])) for name in ("off", "clocks", "woven"))
    assert sum("SR_CLOCK" in one.text for one in floor) == sum("SR_CLOCK" in one.text for one in woven) == 6
    assert not any("STG" in one.text for one in floor)
    kinds = [Counter(one.text.split()[0] for one in loop if "MMA" in one.text) for loop in (plain, floor)]
    assert kinds[0] == kinds[1]


@needs_nvrtc
@ready
def test_without_the_wait_only_that_bit_is_gone(loop: Variants) -> None:
    pairs = zip(read(loop.cubins["woven"]), read(loop.cubins["no wait"]), strict=True)
    changed = [(old, new) for old, new in pairs if (old.low, old.high) != (new.low, new.high)]
    assert [old.text for old, _ in changed] == loop.code["waits for the store"] != []
    (store,) = (one for one in sass.hot_loop(read(loop.cubins["woven"])) if "STG" in one.text)
    for old, new in changed:
        assert (old.low, old.high ^ new.high) == (new.low, 1 << WAITS + store.reads)
        assert old.waits(store.reads)


@needs_nvrtc
@ready
def test_the_command_needs_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ablation, "GEMMS", {})
    monkeypatch.setattr(ablation, "MARKS", {"pair": 1})
    monkeypatch.setattr(sys, "argv", ["ablation.py", "--static", "--json", str(tmp_path / "out.json")])
    ablation.main()
    code = json.loads((tmp_path / "out.json").read_text())["pair"]["code"]
    assert code["woven"]["instructions"] > len(code["woven in"]) >= 5
    assert code["woven"]["registers"] > code["off"]["registers"]
    assert code["woven"]["stall cycles"] >= code["woven"]["instructions"]


def made(at: int, read: int = NONE, write: int = NONE, waits: int = 0) -> Instruction:
    return Instruction(at, "", 0, 1 << STALL | write << WRITE | read << READ | waits << WAITS, 0, None)


def test_a_barrier_that_others_use_too_is_waited_for_still() -> None:
    store, wait, load, use = made(0, read=1), made(16, waits=0b10), made(32, write=1), made(48, waits=0b11)
    assert waits_for(store, [store, wait, load, use]) == [wait]
    assert waits_for(store, [load, use, store, wait]) == [wait]
    assert waits_for(store, [wait, load, use, store]) == [wait], "around the loop's end"
    assert waits_for(store, [use, load, store, wait]) == [], "the wait is the load's as well"
    assert waits_for(store, [store, made(16), made(32, waits=0b01)]) == []


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(SystemExit, match="no-such-tool is neither in the path nor beside nvcc: install"):
        sass.run("no-such-tool")
