"""PTX whose lines are numbered by `.loc`: the same machine code, and the same verification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.golden_ptx import GOLDEN
from tests.support.sass_kernels import DIVISION, HOISTED, UNROLLED, needs_tools
from warplens.sass.cubin_file import SassError, read_cubin_file
from warplens.sass.machine_code import MachineCode, assemble_with_lines, verify_code
from warplens.sass.numbered_lines import numbered_ptx
from warplens.sass.verified_regions import KernelVerification
from warplens.weave.weaver import weave

pytestmark = needs_tools
NAMES = ("nvcc12_kernels", "nvcc_kernels_lineinfo", "triton_vector_add", "triton_attention_sm80", "cute_saxpy")


def both(text: str) -> tuple[str, bytes, bytes]:
    """A kernel, and its cubins of the woven text and of the same text with numbered lines."""
    woven = weave(text)
    try:
        return next(iter(woven.entries)), *(assemble_with_lines(one) for one in (woven.text, numbered_ptx(woven.text)))
    except SassError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("text", [HOISTED, UNROLLED, DIVISION, *NAMES])
def test_numbers_change_neither_the_code_nor_what_is_found_in_it(text: str) -> None:
    text = text if "\n" in text else (GOLDEN / f"{text}.ptx").read_text(errors="replace").replace("\0", "")
    kernel, plain, numbered = both(text)
    assert read_cubin_file(numbered).code(kernel) == read_cubin_file(plain).code(kernel) != b""
    code = MachineCode(kernel, weave(text).text, plain)
    expected = verify_code(code)
    found = verify_code(replace(code, cubin=numbered, numbered=True, source="numbered"))
    assert expected.problem == found.problem == ""
    assert _regions(found) == _regions(expected) != []
    assert found.fingerprint == expected.fingerprint
    assert found.source == "numbered"


def _regions(found: KernelVerification) -> list[Any]:
    """What was found in each region; only the kernel's first instructions have another line with numbers."""
    return [one.to_json() for one in found.regions]


def test_a_linker_that_keeps_only_lines_of_the_ptx_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the driver had dropped the lines of `.loc`: those of the numbered text are left."""
    from warplens.sass import region_verifier

    kernel, _, numbered = both(HOISTED)
    original = region_verifier.disassemble

    def without_loc(cubin: bytes, *, by_loc: bool = False) -> object:
        found = original(cubin, by_loc=by_loc)
        if by_loc:
            for name, one in found.items():
                found[name] = replace(one, instructions=tuple(replace(each, line=0) for each in one.instructions))
        return found

    monkeypatch.setattr(region_verifier, "disassemble", without_loc)
    code = MachineCode(kernel, weave(HOISTED).text, numbered, numbered=True, source="the driver")
    found = verify_code(code)
    assert (found.problem, found.source) == ("", "the driver")
    assert found["load"].flag == "its only global load is before its begin"
