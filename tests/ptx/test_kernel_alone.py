"""One kernel of a module, with what it needs of the rest."""

from __future__ import annotations

from warplens.ptx.kernel_alone import kernel_alone
from warplens.ptx.tree import parse

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
BODY = "{\n\t.reg .b64 %rd<3>;\n\t%s\n\tret;\n}\n"


def function(name: str, line: str = "", kind: str = ".visible .entry") -> str:
    return f"{kind} {name}()\n" + BODY.replace("%s", line)


def kept(text: str, kernel: str) -> list[str]:
    return [one.name for one in parse(kernel_alone(parse(HEAD + text), kernel).text()).functions]


def test_other_kernels_and_their_functions_are_left_out() -> None:
    helper, other = function("helper", kind=".func"), function("unused", kind=".func")
    text = helper + other + function("a", "call helper, ();") + function("b", "call unused, ();")
    assert kept(text, "a") == ["helper", "a"]
    assert kept(text, "b") == ["unused", "b"]


def test_what_is_mentioned_by_name_stays() -> None:
    launched = function("child") + function("a", "mov.u64 %rd1, child;") + function("b")
    assert kept(launched, "a") == ["child", "a"]
    table = ".global .u64 table[1] = {called};\n" + function("called", kind=".func") + function("a") + function("b")
    assert kept(table, "a") == ["called", "a"]
    targets = function("f", kind=".func") + function("a", "t: .calltargets f;\n\t{ call %rd1, (), t; }") + function("b")
    assert kept(targets, "a") == ["f", "a"]
    helper = function("helper", kind=".func")
    declared = ".func helper();\n" + function("a", "call helper, ();") + helper + "// .globl b\n" + function("b")
    assert kept(declared, "a") == ["helper", "a", "helper"]


def test_a_module_with_debug_information_stays_whole() -> None:
    text = function("a") + function("b") + ".section .debug_info\n{\n.b64 $L__func_begin0\n}\n"
    assert kept(text, "a") == ["a", "b"]
