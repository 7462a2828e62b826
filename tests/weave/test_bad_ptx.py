"""Bad PTX is refused with one kind of error, at its line; nothing else leaves the parser, the rules or the weaver."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.ptx import run_case
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import MAX_NESTING, parse
from warplens.weave.weaver import weave
from warplens.weave.weaving import POLICIES, LaunchBuffer, ParamBuffer, SymbolBuffer, Weaving

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .pred %p<2>; .reg .b16 %h1; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>;"


def kernel(body: str, more: str = "") -> str:
    return f"{HEAD}{more}.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"


MARK = "// @warplens I i"


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_ptx_is_woven_or_refused(seed: int) -> None:
    run_case(random.Random(seed))


@pytest.mark.parametrize("body", ["{ }", "{ { } }", "{\n// nothing\n}", "{ ; }", ""], ids=repr)
def test_empty_scopes_are_woven(body: str) -> None:
    text = kernel(f"{MARK}\nadd.u32 %r1, %r1, 1;\n{body}")
    assert weave(text).entries == {"k": 1}
    assert parse(mark_ptx(kernel(f"{body}\nst.global.u32 [%rd1], %r1;"), Auto.of("all")).text).entries


def test_functions_without_code_are_woven() -> None:
    empty = ".func f()\n{\n}\n.func g() { // nothing\n}\n.entry other() { }\n"
    assert weave(kernel(f"{MARK}\nadd.u32 %r1, %r1, 1;", empty)).entries == {"k": 1}
    assert set(mark_ptx(kernel("st.global.u32 [%rd1], %r1;", empty), Auto.of("stores")).sites) == {"k"}


def test_an_alias_of_a_marked_function_is_refused_at_its_line() -> None:
    marked = f".func f()\n{{\n.reg .b32 %r1;\n{MARK}\nmov.u32 %r1, 0;\nret;\n}}\n.func h();\n.alias h, f;\n"
    with pytest.raises(PtxError, match="f, which contains marks, has an alias") as caught:
        weave(kernel("call h, ();", marked))
    assert caught.value.line == 12
    assert weave(kernel(f"{MARK}\nmov.u32 %r1, 0;", marked.replace(MARK, ""))).entries == {"k": 1}


REFUSED = {
    "V v f32 %r9999x": "no register",
    "V v f32 %zz1": "no register",
    "V v u32 %f1": "declared as .f32",
    "V v f32 %rd1 ": "",
    "V v u32 %p1": "declared as .pred",
    "V v u32 %h1": "declared as .b16",
    "V v u64 %r1": "declared as .b32",
    "V v f64 %f1": "declared as .f32",
    "V v u32 1.5": "not a number of type u32",
    "V v f32 5": "not a number of type f32",
    "V v f32 1.2.3": "not a number of type f32",
    "A a %rd1": "declared as .b64",
    "Z a 1.0": "not a number of type tag",
    "V v u32": "unknown mark",
    "B": "unknown mark",
    "": "unknown mark",
}


@pytest.mark.parametrize("mark", REFUSED, ids=REFUSED)
def test_a_mark_with_a_wrong_operand_is_refused_at_its_line(mark: str) -> None:
    text = kernel(f"add.u32 %r1, %r1, 1;\n// @warplens {mark}.\nadd.u32 %r1, %r1, 1;".replace(".\n", "\n"))
    if not REFUSED[mark]:
        assert weave(text).entries == {"k": 1}
        return
    if not mark:
        text = text.replace("// @warplens ", "// @warplens X")
    with pytest.raises(PtxError, match=REFUSED[mark]) as caught:
        weave(text)
    assert caught.value.line == 8


@pytest.mark.parametrize(
    "line",
    ["ld.param.u64 %rd1;", "ld.const.u32 %r1;", "mov.u64 %rd1, %rd1;", "mov.u64 %rd1;", "min.s32 %r1, %r2, %r3, %r1;"],
)
def test_instructions_with_too_few_or_too_many_operands_are_no_crash(line: str) -> None:
    text = kernel(f"{line}\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $L;\n{MARK}\n$L:\nst.global.u32 [%rd1], %r1;")
    for buffer in (ParamBuffer(-1), SymbolBuffer(), LaunchBuffer()):
        for store in POLICIES:
            with contextlib.suppress(PtxError):
                parse(weave(text, buffer=buffer, how=Weaving(store=store)).text)


@pytest.mark.parametrize(
    "text",
    [
        ".version 8.0\n.address_size x\n",
        ".global .align .b8 x;",
        ".global .align 4 .b8 x[abc];",
        ".global .align 4 .b8 x[" + "9" * 5000 + "];",
        kernel(".reg .b32 %x<" + "9" * 5000 + ">;"),
        f"{HEAD}.entry k(.param .b8 p[q])\n{{ ret; }}",
        f"{HEAD}.entry k() .reqntid {'9' * 5000}\n{{ ret; }}",
        kernel("{" * (MAX_NESTING + 2) + "}" * (MAX_NESTING + 2)),
        "// @woven not json",
        '// @woven {"regions": 3}',
        "// @woven []",
        kernel(f"{MARK}\nadd.u32 %r1, %r1")[:-9],
        kernel("é: bra ☃;"),
        f"{HEAD}.entry k() .reqntid\n{{\n{MARK}\nret;\n}}",
        kernel("call f, ();", f".func f(,\n{{\n{MARK}\nret;\n}}\n"),
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(PtxError):
        parse(text)
        weave(text)


def test_deep_nesting_up_to_the_limit_is_woven() -> None:
    inside = "{" * MAX_NESTING + f"\n{MARK}\nadd.u32 %r1, %r1, 1;\n" + "}" * MAX_NESTING
    assert weave(kernel(inside)).entries == {"k": 1}
