"""Classes of SASS opcodes."""

from __future__ import annotations

import pytest

from warplens.sass.main_work import WEIGHTS, WORDS, main_class, main_work_flag
from warplens.sass.opcode_classes import CLASSES, class_of


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("FFMA", "fp32"),
        ("DFMA", "fp64"),
        ("HFMA2.BF16_V2", "fp16"),
        ("MUFU.EX2", "special"),
        ("HMMA.16816.F32", "tensor"),
        ("HGMMA.64x128x16.F32", "tensor"),
        ("UTCHMMA", "tensor"),
        ("LDG.E.128", "load.global"),
        ("LDGSTS.E.BYPASS.128", "copy"),
        ("UTMALDG.2D", "copy"),
        ("UBLKCP.S.G", "copy"),
        ("LDSM.16.M88.4", "load.shared"),
        ("STS.128", "store.shared"),
        ("STL.64", "store.local"),
        ("ULDC.64", "load.constant"),
        ("LDCU.128", "load.constant"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("SYNCS.ARRIVE.TRANS64", "barrier"),
        ("LDGDEPBAR", "barrier"),
        ("CCTL.IVALL", "barrier"),
        ("CCTL.E.PF2", "copy"),
        ("ENDCOLLECTIVE", "barrier"),
        ("CGAERRBAR", "barrier"),
        ("WARPGROUP.ARRIVE", "barrier"),
        ("UIADD3", "integer"),
        ("IMAD.MOV.U32", "move"),
        ("IMAD.WIDE.U32", "integer"),
        ("ISETP.GE.AND", "integer"),
        ("S2UR", "move"),
        ("SHFL.BFLY", "shuffle"),
        ("VOTEU.ANY", "shuffle"),
        ("F2FP.BF16.F32.PACK_AB", "convert"),
        ("ATOMG.E.ADD", "atomic"),
        ("REDG.E.ADD", "atomic"),
        ("BRA", "branch"),
        ("WHATEVER.NEW", "other"),
    ],
)
def test_an_opcode_has_a_class(opcode: str, kind: str) -> None:
    assert class_of(opcode) == kind
    assert kind in CLASSES


def test_the_main_work_is_what_weighs_most() -> None:
    assert main_class({"tensor": 1, "integer": 100}, {}) == "tensor"
    assert main_class({"integer": 30, "load.global": 1}, {}) == "load.global"
    assert main_class({"move": 9, "branch": 3}, {}) == ""
    assert WEIGHTS.keys() == WORDS.keys() <= set(CLASSES)


def test_a_flag_says_what_is_where() -> None:
    assert main_work_flag({"copy": 3}, {"copy": 3}, {}, {}) == ""
    before = {("copy", "before"): 3}
    assert main_work_flag({"copy": 1}, {"copy": 3}, {}, before) == "3 of its 4 asynchronous copies are before its begin"
    both = {("tensor", "before"): 1, ("tensor", "after"): 1}
    assert main_work_flag({}, {"tensor": 2}, {}, both) == "all of its 2 tensor instructions are outside its marks"
    assert main_work_flag({}, {}, {}, {}) == "no instruction of the kernel is between its marks"
    assert main_work_flag({"move": 1}, {}, {}, {}) == ""
