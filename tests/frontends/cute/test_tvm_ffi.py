"""CuTe DSL functions called through TVM-FFI, as FlashAttention-4, quack and FlashInfer call theirs."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from tests.support.cpp_launches import run_scenario

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="needs apache-tvm-ffi"),
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="needs nvidia-cutlass-dsl"),
    pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler"),
]


def test_functions_compiled_inside_the_profile_are_recorded() -> None:
    told = run_scenario("tvm_ffi", module="cute_scenarios")
    assert told["kind"].startswith("TVMFFI")
    assert [woven for _, woven in told["fired"]] == [False] * 2 + [True] * 4 + [False] * 2
    assert told["identical"], "results are bit-identical, marked or not"
    assert told["seen"] == {"scale": 2, "Shift.kernel": 2}, "kernels have the names of their functions"
    assert (told["launches"], told["tracks"]) == (4, 32)
    assert "load wait cute_auto_kernels.py:30" in told["regions"]
    assert told["stderr"] == ""


def test_without_the_hooks_its_kernels_are_listed() -> None:
    told = run_scenario("tvm_ffi_unseen", module="cute_scenarios", WARPLENS_CPP="0")
    assert not any(woven for _, woven in told["fired"])
    assert "it is called by TVM-FFI, past Python: WARPLENS_CPP=0 is set" in told["notes"]["scale"][0]


def test_functions_compiled_before_the_profile_say_so() -> None:
    told = run_scenario("tvm_ffi_before", module="cute_scenarios")
    assert not any(woven for _, woven in told["fired"])
    assert "compiled before the profile began" in told["stderr"]
    assert told["stderr"].count("\n") == 1


def test_marks_by_hand_need_no_automatic_ones() -> None:
    told = run_scenario("tvm_ffi_by_hand", module="cute_scenarios")
    assert [woven for _, woven in told["fired"]] == [False, True, True, False]
    assert told["identical"], "results are bit-identical, marked or not"
    assert told["seen"] == {"Scale.kernel": 2}
    assert told["regions"] == ["n", "scale"]
    assert told["stderr"] == ""
