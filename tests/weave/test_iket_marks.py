"""IKET's marks in PTX become marks of warplens."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.golden_ptx import ptxas
from warplens.weave.iket_marks import with_iket_marks
from warplens.weave.weaver import weave

MARK, PUSH, RANGE = 0, 1, 4
S8, F32, U64 = 1, 13, 16


def declare(number: int, name: str, usage: int, payload: int = 0) -> str:
    words = (60, number, 3, payload, usage, 0, len(name))
    data = b"".join(word.to_bytes(4, "little") for word in words) + name.encode()
    return f".visible .global .align 1 .b8 __iket_evt_decl_{number}_attrs[60] = {{{', '.join(map(str, data))}}};"


def event(number: int, payload: str = "") -> str:
    bits = 64 if "rd" in payload else 32
    moved = f"mov.b{bits} %payload{bits}, {payload};" if payload else ""
    declared = f".reg .b{bits} %payload{bits};" if payload else ""
    return f"""	// begin inline asm
	{{
	.reg .b32 %t;
	{declared}
	mov.u32 %t, %globaltimer_lo;
	{moved}
	pmevent.mask {number};
	}}
	// end inline asm"""


def kernel(*lines: str, events: tuple[str, ...] = ()) -> str:
    body = "\n".join(lines)
    declared = "\n".join(events)
    return f""".version 8.0
.target sm_90a
.address_size 64
{declared}
.visible .entry k(.param .u64 k_0, .param .u64 k_1)
{{
	.reg .pred %p<4>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %tid.x;
	ld.param.u64 %rd1, [k_0];
	setp.lt.u32 %p1, %r1, 32;
{body}
	st.global.u32 [%rd1], %r1;
	ret;
}}
"""


def marks(text: str) -> list[str]:
    return re.findall(r"// @warplens (.*)", with_iket_marks(text))


def test_names_kinds_and_payloads_come_from_the_declarations() -> None:
    events = declare(1, "a b", MARK), declare(2, "x", MARK, F32), declare(3, "tail", RANGE, U64), declare(4, "in", PUSH)
    lines = event(1), event(2, "%r1"), event(3, "%rd1"), event(4), event(31), event(3, "%rd1")
    assert marks(kernel(*lines, events=events)) == [
        *("I a%20b", "V x f32 %r1", "B tail", "V tail u64 %rd1", "B in", "E in", "V tail u64 %rd1", "E tail"),
    ]


def test_a_timer_read_of_its_own_goes_with_its_mark() -> None:
    """TileLang stores the time of a mark with a payload in inline asm of its own."""
    timer = event(1).replace("\tpmevent.mask 1;\n", "")
    moved = event(1, "%r1").replace("mov.u32 %t, %globaltimer_lo;", "mov.b32 %t, %cluster_ctarank;")
    text = kernel(timer, moved.replace("%payload32", "p"), timer, events=(declare(1, "x", MARK, F32),))
    assert marks(text) == ["V x f32 %r1"]
    assert with_iket_marks(text).count("globaltimer_lo") == 1, "other code that reads the timer stays"


def test_short_payloads_are_widened() -> None:
    text = with_iket_marks(kernel(event(1, "%r1"), events=(declare(1, "x", MARK, S8),)))
    assert "shl.b32 %wl_iket_payload_0, %r1, 24;" in text
    assert "shr.s32 %wl_iket_payload_0, %wl_iket_payload_0, 24;" in text
    assert "// @warplens V x s32 %wl_iket_payload_0" in text


def test_other_performance_events_stay_as_they_are() -> None:
    text = kernel(event(7), events=(declare(1, "x", MARK),))
    assert with_iket_marks(text) == text
    assert with_iket_marks(kernel("\tpmevent 3;")) == kernel("\tpmevent 3;")


@pytest.mark.parametrize("value", ["", "= {60, 0, 0, 0, 1, 0, 0, 0, 4096}", "= {60, 0, 0, 0, 1, 0, 0, 0, name_700}"])
def test_a_declaration_of_another_form_costs_no_more_than_its_name(value: str) -> None:
    declared = f".visible .global .align 1 .b8 __iket_evt_decl_x_1_attrs[60] {value};"
    assert marks(kernel(event(1), events=(declared,))) == (["I event%201"] if value else [])


def test_where_paths_agree_nothing_is_decided_at_run_time() -> None:
    events = declare(1, "range", RANGE), declare(2, "pushed", PUSH)
    loop = "$L1:", event(1), event(2), event(31), event(1), "\tsetp.lt.u32 %p2, %r1, 3;", "\t@%p2 bra $L1;"
    text = kernel(*loop, events=events)
    assert marks(text) == ["B range", "B pushed", "E pushed", "E range"]
    assert "%wl_iket" not in with_iket_marks(text)


def guarded(number: int) -> tuple[str, ...]:
    return f"\t@!%p1 bra $G{number};", event(2 + number % 2), f"$G{number}:"


@pytest.mark.parametrize("pairs", [1, 12])
def test_pairs_under_the_same_condition_assemble(pairs: int, tmp_path: Path) -> None:
    """Paths that no thread takes, on which only one of a pair runs, leave every pop with several candidates."""
    events = declare(1, "outer", PUSH), declare(2, "even", PUSH), declare(3, "odd", PUSH)
    inner = [line for at in range(pairs) for line in (*guarded(at), f"\t@!%p1 bra $E{at};", event(31), f"$E{at}:")]
    text = with_iket_marks(kernel(event(1), *inner, event(31), events=events))
    assert text.count("// @warplens B") == pairs + 1
    assert "// @warplens E outer" in text.rpartition("$wl_iket_popped_")[0]
    (tmp_path / "woven.ptx").write_text(weave(text).text)
    subprocess.run([ptxas(), "-arch=sm_90a", "woven.ptx", "-o", "woven.cubin"], cwd=tmp_path, check=True)
