"""The listing of nvdisasm as data: instructions, lines, labels and where control goes."""

from __future__ import annotations

import textwrap

import pytest

from tests.support.sass_kernels import DIVISION, code_of, needs_tools
from warplens.sass.cubin_file import SassError
from warplens.sass.disassembly import SassFunction, SassInstruction, disassemble, parse_listing


def listing(body: str) -> SassFunction:
    """Parse a hand-written listing of one kernel."""
    text = '\t.section\t.text.k,"ax",@progbits\nk:\n.text.k:\n' + textwrap.dedent(body)
    return parse_listing(text)["k"]


def test_instructions_have_lines_predicates_and_classes() -> None:
    function = listing(
        """\
        \t//## File ".nv_debug_ptx_txt", line 24
                /*0000*/                   LDG.E.CONSTANT R2, desc[UR6][R20.64] ;
                /*0010*/              @!P0 CS2R.32 R19, SR_CLOCKLO ;
        \t//## File ".nv_debug_ptx_txt.1234", line 31
                /*0020*/              @UP1 HFMA2.MMA R1, -RZ, RZ, 0, 0 ;
        """
    )
    load, clock, constant = function.instructions
    assert (load.address, load.line, load.kind, load.predicate) == (0, 24, "load.global", "")
    assert (clock.line, clock.reads_clock, clock.text) == (24, True, "@!P0 CS2R.32 R19, SR_CLOCKLO")
    assert (constant.line, constant.kind, constant.predicate) == (31, "move", "UP1")


def test_how_an_instruction_is_scheduled_is_no_operand_of_it() -> None:
    """nvdisasm prints it for sm_120."""
    function = listing(
        """\
                /*0000*/                   LDG.E R2, desc[UR4][R2.64]      &req={0} &wr=0x2         ?trans1;
                /*0010*/                   BSYNC.RECONVERGENT B0           &req={1,0}               ?WAIT15_END_GROUP;
                /*0020*/                   BRX R2 -0xc0                    ?trans5        (*"BRANCH_TARGETS .L_x_2"*);
        .L_x_2:
                /*0030*/                   EXIT                                                     ?trans5;
        """
    )
    load, converges, jump, leaves = function.instructions
    assert load.text == "LDG.E R2, desc[UR4][R2.64]"
    assert (converges.operands, leaves.operands) == ("B0", "")
    assert "trans" not in jump.text
    assert function.successors()[2] == [3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IMAD.U32 R5, RZ, RZ, UR4", "move"),
        ("@P0 IMAD.MOV.U32 R5, RZ, RZ, R4", "move"),
        ("IMAD.X R7, RZ, RZ, R5, P0", "integer"),
        ("IMAD R7, R2, R3, RZ", "integer"),
        ("HFMA2 R0, -RZ, RZ, 0, 0", "move"),
        ("HFMA2 R0, R1, R2, -RZ", "fp16"),
    ],
)
def test_a_product_of_zeros_is_a_move(text: str, kind: str) -> None:
    assert listing(f"    /*0000*/  {text} ;\n").instructions[0].kind == kind


def test_only_a_call_of_a_function_by_its_name_is_one() -> None:
    """ptxas also writes jumps as calls; and a call by a pointer names the kernel, which its address is relative to."""
    function = listing(
        """\
                /*0000*/                   CALL.REL.NOINC `($k$f) ;
                /*0010*/                   CALL.REL.NOINC R6 `(k) ;
                /*0020*/              @!P1 CALL.REL.NOINC `(.L_x_1) ;
                /*0030*/                   EXIT ;
        $k$f:
                /*0040*/                   RET.REL.NODEC R20 `(k) ;
        .L_x_1:
                /*0050*/                   EXIT ;
        """
    )
    assert function.calls() == {0: 4}


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("IADD3 R0, R0, 0x1, RZ", [1]),
        ("EXIT", []),
        ("@P0 EXIT", [1]),
        ("BRA `(.L_x_2)", [2]),
        ("@P0 BRA `(.L_x_2)", [2, 1]),
        ("BRA.U !UP0, `(.L_x_2)", [2, 1]),
        ("@!P1 BRA.DIV UR6, `(.L_x_2)", [2, 1]),
        ("BSSY B0, `(.L_x_2)", [1]),
        ("CALL.REL.NOINC `($k$f)", [1]),
        ("CALL.REL.NOINC `(.L_x_2)", [2]),
        ("@!P1 CALL.REL.NOINC `(.L_x_2)", [2, 1]),
        ("CALL.REL.NOINC R6 `(k)", [1]),
        ("RET.REL.NODEC R4 `(k)", []),
        ('BRX R6 -0x1f0 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)', [1, 2]),
    ],
)
def test_control_goes_where_the_instruction_says(text: str, after: list[int]) -> None:
    function = listing(f"    /*0000*/  {text} ;\n.L_x_1:\n    /*0010*/  NOP ;\n.L_x_2:\n    /*0020*/  EXIT ;\n")
    assert function.successors()[0] == after


def test_a_convergence_barrier_continues_at_its_own_label() -> None:
    function = listing(
        """\
            /*0000*/  BSSY B0, `(.L_x_1) ;
            /*0010*/  BSSY B1, `(.L_x_2) ;
            /*0020*/  BSYNC B1 ;
            /*0030*/  NOP ;
        .L_x_2:
            /*0040*/  BSYNC B0 ;
            /*0050*/  NOP ;
        .L_x_1:
            /*0060*/  EXIT ;
        """
    )
    assert function.successors()[2] == [4]
    assert function.successors()[4] == [6]


@needs_tools
def test_a_subroutine_of_ptxas_has_no_line() -> None:
    function = disassemble(code_of(DIVISION).cubin or b"")["k"]
    start = next(address for label, address in function.labels.items() if "div" in label)
    inside = [one for one in function.instructions if one.address >= start]
    assert len(inside) > 20
    assert not any(one.line for one in inside[:10])
    assert any(one.line for one in function.instructions if one.address < start)


@needs_tools
def test_nvdisasm_that_refuses_gives_one_line() -> None:
    cubin = bytearray(code_of(DIVISION).cubin or b"")
    cubin[48:52] = b"\xff\xff\xff\xff"
    with pytest.raises(SassError) as failure:
        disassemble(bytes(cubin))
    assert "\n" not in str(failure.value)
    assert "nvdisasm" in str(failure.value)


def test_an_instruction_prints_as_in_the_listing() -> None:
    assert SassInstruction(16, "BAR.SYNC.DEFER_BLOCKING", "0x0", "P3").text == "@P3 BAR.SYNC.DEFER_BLOCKING 0x0"


@needs_tools
def test_a_cubin_is_disassembled_once_for_all_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = code_of(DIVISION).cubin or b""
    first = disassemble(cubin)
    monkeypatch.setattr("warplens.sass.disassembly._listing", lambda *arguments: pytest.fail("asked again"))
    assert disassemble(cubin) == first
