"""What the code of a region is made of travels with the woven kernel, by region."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from tests.support.ptx_kernels import HEAD
from warplens.weave import region_code
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer
from warplens.weave.woven_ptx import Woven

_TEXT = (
    HEAD
    + """
.visible .entry k(.param .u64 a)
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 256;
  add.s64 %rd3, %rd1, %rd2;
  // @warplens B load
  ld.global.f32 %f1, [%rd3];
  ld.global.f32 %f2, [%rd3+4];
  // @warplens E load
  // @warplens B sync
  bar.sync 0;
  // @warplens E sync
  // @warplens B add
  atom.global.add.f32 %f3, [%rd1], %f1;
  // @warplens E add
  st.global.f32 [%rd3], %f2;
  ret;
}
"""
)


def test_the_code_of_each_region_is_counted() -> None:
    woven = weave(_TEXT, buffer=SymbolBuffer())
    code = {woven.regions.get(int(number or 0), ""): counts for number, counts in woven.code["k"].items()}
    assert code == {
        "load": {
            **{"instructions": 2, "loads": 2, "load_bytes": 8, "load_waste": 8.0},
            **{"moved_bytes": 256, "wasted_bytes": 768, "fetch_bytes": 1024},
        },
        "sync": {"instructions": 1, "barriers": 1, "unknown_barriers": 1},
        "add": {"instructions": 1, "atomics": 1},
        "": {"instructions": 6, "store_waste": 8.0, "stores": 1, "moved_bytes": 128, "wasted_bytes": 896},
    }
    assert Woven.restore(woven.text, woven.describe()).code == woven.code
    assert weave(woven.text).code == woven.code, "a woven text says it again"


def test_loads_that_fill_the_gaps_of_one_another_waste_nothing() -> None:
    """Four loads of 4 bytes with lanes 16 bytes apart are one load of 16 bytes in four parts."""
    parts = "".join(f"  ld.global.f32 %f1, [%rd3+{4 * at}];\n" for at in range(4))
    far = "".join(f"  ld.global.f32 %f1, [%rd3+{4096 * at}];\n" for at in range(4))
    same = "".join(f"  ld.global.f32 %f1, [%rd1+{4 * at}];\n" for at in range(4))
    for loads, waste in ((same, 1.0), (parts, 1.0), ("  ld.global.f32 %f1, [%rd3];\n", 4.0), (far, 4.0)):
        text = _TEXT.replace("  ld.global.f32 %f1, [%rd3];\n  ld.global.f32 %f2, [%rd3+4];\n", loads)
        woven = weave(text.replace("%r2, 256", "%r2, 16"), buffer=SymbolBuffer())
        assert woven.code["k"]["1"]["load_waste"] == waste


def test_conflicts_are_added_up_over_all_accesses() -> None:
    """One access of two has all lanes on one bank: the other 31 wait, and the mean access takes 16.5 times as long."""
    both = "  mov.u32 %r9, tile; shl.b32 %r4, %r2, SHIFT; add.s32 %r5, %r9, %r4; ld.shared.f32 %f1, [%r5];\n"
    loads = both.replace("SHIFT", "7") + both.replace("SHIFT", "2").replace("%r4", "%r6").replace("%r5", "%r7")
    text = _TEXT.replace("  ld.global.f32 %f1, [%rd3];\n  ld.global.f32 %f2, [%rd3+4];\n", loads)
    counts = weave(text, buffer=SymbolBuffer()).code["k"]["1"]
    assert (counts["shared"], counts["ways"], counts["conflicts"]) == (2, 32, 31)


def test_the_work_of_matrix_products_is_counted_per_warp() -> None:
    registers = ", ".join(["%f1"] * 4)
    group = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {" + registers + "}, %rd1, %rd2, 1, 1, 1, 0, 0;"
    single = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r2}, {%r2}, {%f1};"
    for line, flops in ((group, 2 * 64 * 8 * 16 / 4), (single, 2 * 16 * 8 * 8 * 2)):
        text = _TEXT.replace("  ld.global.f32 %f1, [%rd3];\n  ld.global.f32 %f2, [%rd3+4];\n", f"  {line}\n")
        woven = weave(text, buffer=SymbolBuffer())
        assert woven.code["k"]["1"] == {"instructions": 1, "matrix": 1, "matrix_flops": flops}


def test_accesses_outside_the_loops_of_a_region_do_not_describe_it() -> None:
    """A loop that loads neighbouring words, then one store with lanes apart."""
    loop = "$L:\n  ld.global.f32 %f1, [%rd5];\n  add.u32 %r9, %r9, 1;\n  setp.lt.u32 %p1, %r9, 64;\n  @%p1 bra $L;\n"
    near = "  mul.wide.u32 %rd4, %r2, 4;\n  add.s64 %rd5, %rd1, %rd4;\n"
    body = f"{near}{loop}  st.global.f32 [%rd3], %f1;\n"
    text = _TEXT.replace("  ld.global.f32 %f1, [%rd3];\n  ld.global.f32 %f2, [%rd3+4];\n", body)
    counts = weave(text, buffer=SymbolBuffer()).code["k"]["1"]
    assert (counts["load_waste"], counts["loads"], counts["stores"]) == (1.0, 1, 1)
    assert "store_waste" not in counts


def test_the_bytes_that_an_instance_moves_are_known_unless_it_loops() -> None:
    """Copies count by their size, bulk copies by what their barrier expects, lanes at one address once."""
    copies = (
        "  cp.async.cg.shared.global [%r2], [%rd3], 16;\n"
        "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048;\n  ld.global.f32 %f1, [%rd1];\n"
    )
    loads = "  ld.global.f32 %f1, [%rd3];\n  ld.global.f32 %f2, [%rd3+4];\n"
    once = weave(_TEXT.replace(loads, copies), buffer=SymbolBuffer()).code["k"]["1"]
    assert once["moved_bytes"] == 32 * 16 + 2048 + 4
    assert "repeats" not in once
    looped = f"$L:\n{loads}  setp.lt.u32 %p1, %r2, %r3;\n  @%p1 bra $L;\n"
    assert weave(_TEXT.replace(loads, looped), buffer=SymbolBuffer()).code["k"]["1"]["repeats"] == 1
    added = looped.replace("ld.global.f32 %f1, [%rd3]", "atom.global.add.f32 %f1, [%rd3], %f1").replace(
        "ld.global.f32 %f2, [%rd3+4]", "atom.global.add.f32 %f2, [%rd3+4], %f2"
    )
    atomics = weave(_TEXT.replace(loads, added), buffer=SymbolBuffer()).code["k"]["1"]
    assert (atomics["atomics"], atomics["loops"], "repeats" in atomics) == (2, 1, False)
    outer = _TEXT.replace("  // @warplens B load", "$L:\n  // @warplens B load").replace(
        "  // @warplens E load", "  // @warplens E load\n  setp.lt.u32 %p1, %r2, %r3;\n  @%p1 bra $L;"
    )
    assert "repeats" not in weave(outer, buffer=SymbolBuffer()).code["k"]["1"]
    twice = _TEXT.replace(
        "  // @warplens B sync", f"  // @warplens B load\n{loads}  // @warplens E load\n  // @warplens B sync"
    )
    assert weave(twice, buffer=SymbolBuffer()).code["k"]["1"]["moved_bytes"] == 256, "an instance runs one of them"


@pytest.mark.filterwarnings("error")
def test_a_block_size_that_no_device_has_takes_no_memory() -> None:
    guarded = _TEXT.replace("  atom", "  setp.eq.u32 %p1, %r2, 0;\n  @%p1 atom")
    plain = weave(guarded, buffer=SymbolBuffer()).code["k"]
    for size in (1024, 99_999_999_999, 10**20):
        text = guarded.replace(".param .u64 a)", f".param .u64 a) .reqntid {size}, 1, 1")
        assert weave(text, buffer=SymbolBuffer()).code["k"].keys() == plain.keys()


def test_a_kernel_whose_code_cannot_be_counted_is_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = weave(_TEXT, buffer=SymbolBuffer())
    monkeypatch.setattr(region_code, "_known", OrderedDict())
    monkeypatch.setattr(region_code, "natural_loops", lambda *given: {}["no such loop"])
    with pytest.warns(UserWarning, match=f"^k {region_code.UNCOUNTED}: KeyError.*report"):
        uncounted = weave(_TEXT, buffer=SymbolBuffer())
    assert uncounted.code == {"k": {}}
    assert uncounted.regions == counted.regions
    assert uncounted.entries == counted.entries
