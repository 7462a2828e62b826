"""What a launch's `extra` may hold."""

from __future__ import annotations

from typing import Any

import pytest

from warplens.record.capture import (
    AUTOMATIC,
    BLOCK_LIVES,
    CODE,
    SAMPLED,
    VARIANT,
)
from warplens.record.launch_extra import without_empty, wrong_extra

_SHARE = {"blocks": 2, "of": 64}
_KNOWN = {"with_records": 2, "known": 64, "sms": 16}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"registers": 0, "spills": (1 << 62) - 1},
        {"registers": None, "not read by any analysis": object()},
        {AUTOMATIC: True, VARIANT: {"BLOCK": 64}, BLOCK_LIVES: "text"},
        {CODE: {"load": {"loads": 2, "bytes": 64.5}}},
        {SAMPLED: _SHARE},
        {SAMPLED: {**_SHARE, **_KNOWN}},
    ],
)
def test_what_profiles_write_is_right(extra: dict[str, Any]) -> None:
    assert wrong_extra(extra) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("registers", -1),
        ("registers", 1 << 62),
        ("registers", 1.0),
        ("registers", True),
        (AUTOMATIC, 1),
        (VARIANT, "BLOCK=64"),
        (BLOCK_LIVES, 5),
        (CODE, {"load": 5}),
        (CODE, {"load": {"bytes": "64"}}),
        (CODE, {"load": {"bytes": float("nan")}}),
        (CODE, {"load": {"bytes": 1e101}}),
        (SAMPLED, {"blocks": 2}),
        (SAMPLED, {"blocks": 65, "of": 64}),
        (SAMPLED, {"blocks": -2, "of": 64}),
        (SAMPLED, {"blocks": 0, "of": 0}),
        (SAMPLED, {**_SHARE, "known": 64}),
        (SAMPLED, {**_SHARE, **_KNOWN, "with_records": 3}),
        (SAMPLED, {**_SHARE, **_KNOWN, "known": 65}),
    ],
)
def test_anything_else_is_named_with_what_is_expected(name: str, value: Any) -> None:
    found = wrong_extra({"spills": 0, name: value})
    assert found is not None
    assert found[0] == name
    assert found[1]


def test_empty_values_are_left_out_where_analyses_read_them() -> None:
    assert without_empty({"registers": None, "spills": 0, "other": None}) == {"spills": 0, "other": None}
