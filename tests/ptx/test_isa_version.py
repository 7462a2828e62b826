"""PTX that states a newer version than the driver assembles."""

from __future__ import annotations

import pytest

from warplens.ptx.isa_version import lowered_for, newest_for


@pytest.mark.parametrize(
    ("cuda", "version"),
    [("CUDA 12.0", (8, 0)), ("CUDA 12.4", (8, 4)), ("CUDA 12.6", (8, 5)), ("CUDA 12.8", (8, 7)), ("CUDA 12.9", (8, 8)),
     ("CUDA 13.0", (9, 0)), ("CUDA 13.4", (9, 4)), ("CUDA 11.8", None), ("", None)],
)  # fmt: skip
def test_drivers_assemble_the_ptx_of_their_cuda(cuda: str, version: tuple[int, int] | None) -> None:
    assert newest_for(cuda) == version


def test_only_a_newer_version_is_lowered() -> None:
    text = "// .version 9.9 in a comment\n.version 9.4\n.target sm_90a\n.version 9.4\n"
    assert lowered_for(text, "CUDA 13.0") == text.replace("\n.version 9.4\n.target", "\n.version 9.0\n.target")
    assert lowered_for(text, "CUDA 13.4") == text
    assert lowered_for(text, "CUDA 14.0") == text
    assert lowered_for(text, "") == text
