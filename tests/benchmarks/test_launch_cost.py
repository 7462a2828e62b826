"""The benchmark of launch costs, as far as it needs no GPU."""

from __future__ import annotations

from pathlib import Path

# The DSL reads the architecture that this sets when it is imported.
import tests.support.cute_gpu  # noqa: F401

# isort: split
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor

from benchmarks.lib.cute_doubled import BLOCKS, THREADS, compiled_doubled
from warplens.frontends.cute.ptx_keeper import text_of


def test_the_cute_function_keeps_its_ptx_for_profiles_that_begin_later(tmp_path: Path) -> None:
    x, y = (make_fake_compact_tensor(Float32, (BLOCKS * THREADS,)) for _ in range(2))
    assert "doubled_kernel" in (text_of(compiled_doubled(x, y, str(tmp_path))) or "")
