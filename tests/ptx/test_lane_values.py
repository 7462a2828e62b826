"""Which instructions are followed for the addresses of a function, and that leaving the others out changes nothing."""

from __future__ import annotations

import pytest

from tests.support.golden_ptx import GOLDEN
from tests.support.large_ptx import straight
from warplens.ptx.lane_accesses import accessed_address, lane_access
from warplens.ptx.lane_values import LaneValues, parsed_number
from warplens.ptx.tree import Instruction, parse


@pytest.mark.parametrize("name", ["triton_matmul_sm90.ptx", "nvcc_kernels.ptx", "numba_tiled_lineinfo.ptx"])
def test_addresses_have_the_same_values_when_only_they_are_followed(name: str) -> None:
    found = 0
    for function in parse((GOLDEN / name).read_text()).entries:
        instructions = list(function.instructions())
        everything = LaneValues(function)
        addresses = LaneValues(function, filter(None, map(accessed_address, instructions)))
        for one in instructions:
            assert lane_access(one, everything) == lane_access(one, addresses)
            found += bool(accessed_address(one))
    assert found


def test_instructions_that_no_address_depends_on_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = "\tadd.s64 %rd1, %rd2, 8;\n\tld.global.u32 %r9, [%rd1];\n"
    text = straight(50)
    at = text.index("\t// @warplens")
    (function,) = parse(text[:at] + load + text[at:]).entries
    followed: list[Instruction] = []
    result = LaneValues.result

    def counted(values: LaneValues, instruction: Instruction) -> object:
        followed.append(instruction)
        return result(values, instruction)

    monkeypatch.setattr(LaneValues, "result", counted)
    values = LaneValues(function, ["[%rd1]"])
    assert values.address("[%rd1]").uniform
    assert {one.opcode for one in followed} == {"add"}
    assert len(followed) == 1
    assert len(list(function.instructions())) > 500


def test_an_instruction_with_more_operands_than_usual_is_not_followed() -> None:
    """As the minimum of three values, whose third operand numpy would take for its output."""
    body = (
        "\t.reg .b32 %r<4>; .reg .b64 %rd<4>;\n\tmov.u32 %r1, %tid.x;\n\tmin.s32 %r2, %r1, 7, 3;\n"
        "\tor.b32 %r3, %r1, 1, 2;\n\tcvt.u64.u32 %rd1, %r2;\n\tst.global.u32 [%rd1], %r3;\n\tret;\n"
    )
    (function,) = parse(f".version 8.8\n.target sm_100\n.address_size 64\n.entry k()\n{{\n{body}}}\n").entries
    values = LaneValues(function)
    assert values.of("%r1").lanes is not None
    assert values.of("%r2").lanes is None
    assert values.of("%r3").lanes is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("-17", -17),
        ("017", 15),
        ("-017U", -15),
        ("0x1F", 31),
        ("00", 0),
        ("0", 0),
        ("089", 0),
        ("%r1", None),
    ],
)
def test_operands_are_numbers_as_ptx_writes_them(text: str, number: int | None) -> None:
    assert parsed_number(text) == number
