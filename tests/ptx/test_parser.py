"""The parser gives back every byte, finds what the weaver looks for, and names the line it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.growth import growth
from warplens.errors import WarplensError
from warplens.ptx import tree
from warplens.ptx.source_lines import SourceLines

GOLDEN = Path(__file__).parents[1] / "golden" / "ptx"
SAMPLES = sorted(GOLDEN.glob("*.ptx"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_text_survives_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    module = tree.parse(text)
    assert module.text() == text
    assert module.target.startswith("sm_")
    assert module.entries
    for function in module.functions:
        for node in function.walk():
            # Line numbers are what errors and source maps rely on.
            assert text.split("\n")[node.line - 1].count(node.raw.split("\n")[0]) >= 1


def test_triton_matmul_structure() -> None:
    module = tree.parse((GOLDEN / "triton_matmul_sm80.ptx").read_text())
    (entry,) = module.entries
    assert (module.version, module.target, module.address_size) == ("8.7", "sm_80", 64)
    assert (entry.name, entry.is_entry, entry.linkage) == ("matmul", True, ("visible",))
    assert entry.performance == {"reqntid": (128,)}
    assert [(param.type, param.size) for param in entry.params] == [("u64", 8)] * 3 + [("u32", 4)] * 3 + [
        ("u64", 8)
    ] * 2
    marks = [node for node in entry.walk() if isinstance(node, tree.Comment) and node.content.startswith("@warplens")]
    assert [mark.content for mark in marks] == [
        "@warplens B load",
        "@warplens E load",
        "@warplens B dot",
        "@warplens E dot",
    ]
    assert all(mark.trailing for mark in marks)
    mma = next(node for node in entry.instructions() if node.opcode == "mma")
    assert mma.modifiers[:3] == ("sync", "aligned", "m16n8k16")
    assert [len(operand.split(",")) for operand in mma.operands] == [4, 4, 2, 4]
    guarded = next(node for node in entry.instructions() if node.predicate)
    assert (guarded.predicate, guarded.negated, guarded.opcode) == ("%p1", False, "bra")
    (smem,) = module.declarations
    assert (smem.space, smem.linkage, smem.align, smem.variables[0].dims) == ("shared", ("extern",), 16, (0,))
    assert any(item.name == "section" for item in module.items if isinstance(item, tree.Directive))


def test_nvcc_module_has_calls_variables_and_several_entries() -> None:
    module = tree.parse((GOLDEN / "nvcc_kernels.ptx").read_text())
    assert len(module.entries) >= 7
    helper = next(function for function in module.functions if not function.is_entry)
    assert [(param.type, param.size) for param in helper.returns] == [("b32", 4)]
    by_name = {v.name: (d, v) for d in module.declarations for v in d.variables}
    declaration, weights = by_name["weights"]
    assert (declaration.space, declaration.size(weights)) == ("const", 16)
    assert by_name["visits"][1].initialiser == "7"
    softmax = next(function for function in module.entries if function.name == "softmax")
    assert softmax.performance["maxntid"] == (256, 1, 1)
    reduce = next(function for function in module.entries if function.name == "reduce")
    (call,) = [node for node in reduce.instructions() if node.opcode == "call"]
    assert ["".join(operand.split()) for operand in call.operands] == ["(retval0)", helper.name, "(param0,param1)"]
    assert any(isinstance(node, tree.Scope) for node in reduce.body or [])


def test_an_edit_changes_nothing_else() -> None:
    text = (GOLDEN / "nvcc_kernels_lineinfo.ptx").read_text()
    module = tree.parse(text)
    entry = module.entries[0]
    assert entry.body is not None
    at = next(i for i, node in enumerate(entry.body) if isinstance(node, tree.Instruction) and node.opcode == "ret")
    entry.body.insert(at, tree.Raw.of("\tmov.u32 %r1, %clock;"))
    assert module.text().replace("\n\tmov.u32 %r1, %clock;", "", 1) == text
    assert tree.parse(module.text()).text() == module.text()


TRICKY = """.version 8.5
.target sm_90a, debug // trailing
.address_size 64
.weak .global .align 8 .u64 table[2] = { 1, generic(other) + 8 };
.visible .global .align 1 .b8 nested[2][2] = {{1, 2}, {3, 4}};
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b) ;
.func stop() .noreturn { trap; }
.entry k(.param .align 64 .b8 k_param_0[128], .param .u64 .ptr .global .align 16 p)
.explicitcluster .reqnctapercluster 2, 1, 1 .maxntid 64
{ .reg .b32 a, b; .reg .pred %p<3>; /* block ; { */ ; .pragma "nounroll";
L: @!%p1 bra.uni L; $x:a$b: {.reg .b32 a; mov.u32 a, 0; // @warplens B x
} cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b, {a, b}], [a];
call (r), stop, ( a ) ; ts: .branchtargets L, $x; brx.idx a, ts; @%p2 ld.global.v2.f32 {a, _}, [b+-4]; ret; }
"""


def test_tricky_forms() -> None:
    module = tree.parse(TRICKY)
    assert module.text() == TRICKY
    assert module.target == "sm_90a"
    entry = module.entries[0]
    assert [(p.name, p.size, p.align) for p in entry.params] == [("k_param_0", 128, 64), ("p", 8, 8)]
    assert entry.performance == {"explicitcluster": (), "reqnctapercluster": (2, 1, 1), "maxntid": (64,)}
    assert [f.body is None for f in module.functions] == [True, False, False]
    opcodes = [node.full_opcode for node in entry.instructions()]
    assert opcodes[0] == "bra.uni"
    assert opcodes[2].endswith("mbarrier::complete_tx::bytes")
    tma = list(entry.instructions())[2]
    assert tma.operands == ("[a]", "[b, {a, b}]", "[a]")
    assert [n.name for n in entry.walk() if isinstance(n, tree.Label)] == ["L", "$x", "a$b", "ts"]
    assert [d.size(v) for d in module.declarations for v in d.variables] == [16, 4]


CUTILE = """.version 9.4
.target sm_90a
.address_size 64
.visible .global .align 8 .b8 ___NV_TILE_LAUNCH_META_DATA___[64];
.visible .entry axpy_Kt1_A1f32()
.reqntid 128
.minnctapersm 1
.language 7
{
	.loc	1 6 10
	.loc_intermediate	2 21 4
	mov.u32 	%r1, %clusterid.x;
	ret;
}
	.file	1 "axpy.py"
	.file	2 "./c5c2597eba1109c66318925a72f60000"
.nv_intermediate_source_section {
  .code_block {
    .ir_name: "tile ir"
    .sourceFileName: 2
    .source_begin
entry @axpy(%arg0: tile<ptr<f32>>) {
  %for = for %k in (%0 to %1, step %2) : tile<i32> { // an open brace: {
  return
.source_end
  }
  .code_block {
    .source_begin
}
.source_end
  }
}
.global .b32 after;
"""


def test_directives_of_cutile() -> None:
    module = tree.parse(CUTILE)
    (entry,) = module.entries
    assert module.text() == CUTILE
    assert entry.performance == {"reqntid": (128,), "minnctapersm": (1,), "language": (7,)}
    names = [node.name for node in entry.walk() if isinstance(node, tree.Directive)]
    assert names == ["loc", "loc_intermediate"], "an instruction follows them"
    assert [instruction.opcode for instruction in entry.instructions()] == ["mov", "ret"]
    assert [one.name for item in module.declarations for one in item.variables][-1] == "after"


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        (".version 8.0\nnonsense here\n", 2, "nonsense here"),
        (".version 8.0\n.entry f()\n{\n\tmov.u32 %r1, 0;\n\t??? %r2;\n}\n", 5, "??? %r2;"),
        (".version 8.0\n.entry f()\n{\n\tmov.u32 %r1, 0;\n", 2, ".entry f()"),
        (".entry f()\n{\n\t.reg .wide %r1;\n}\n", 3, ".reg .wide %r1;"),
        (".entry f(\n.param .odd x)\n{}", 1, ".param .odd x"),
        (".entry f()\n{\n\tadd.s32 %r1, %r2, %r3\n}\n", 3, "add.s32 %r1, %r2, %r3"),
    ],
)
def test_errors_name_line_and_text(text: str, line: int, shown: str) -> None:
    with pytest.raises(tree.PtxError) as caught:
        tree.parse(text)
    assert isinstance(caught.value, WarplensError)
    assert caught.value.line == line
    assert shown in str(caught.value)


@given(st.text(alphabet='abr.%@!{}()[]<>;:,/*"\n\t 019$_=+-', max_size=200))
def test_any_body_is_read_losslessly_or_refused(body: str) -> None:
    text = ".version 8.0\n.target sm_80\n.entry f() {" + body + "}"
    try:
        module = tree.parse(text)
    except tree.PtxError:
        return
    assert module.text() == text


def test_time_to_parse_grows_with_the_lines_and_no_faster() -> None:
    text = (GOLDEN / "triton_matmul_sm80.ptx").read_text()
    start, end = text.index("$L__BB0_3:"), text.index("$L__BB0_1:")
    loop = text[start:end]

    def long(lines: int) -> str:
        return text[:start] + loop * (lines // loop.count("\n")) + text[end:]

    assert tree.parse(long(20_000)).text() == long(20_000)
    # Four times the lines: 16 times the time were it square.
    assert growth(tree.parse, long(5_000), long(20_000)) < 8


def test_a_zero_byte_in_the_name_of_a_source_file_does_no_harm() -> None:
    files = tree.parse('.version 8.0\n.target sm_90\n.file 1 "a\0b.py"\n').files
    assert SourceLines(files).of("1 7 0") == ("a\0b.py", 7)
