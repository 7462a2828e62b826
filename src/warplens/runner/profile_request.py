"""What one process asks another one to record, as text for its environment."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ProfileRequest:
    """What to record of a program, and how to report it."""

    path: Path
    options: Mapping[str, Any]
    program: tuple[str, ...]
    json_output: int | None = None
    """The file descriptor for the JSON document; None for a report in text."""
    launches_given: bool = False
    merge_variants: bool = False
    ranks: str | None = None
    """The ranks to record, as `--ranks` names them; None for all."""
    size: int = 1
    """The number of ranks that the launcher of the asking process told it of."""
    force: bool = False
    """Whether parts that are there are replaced."""

    def to_text(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_text(text: str) -> ProfileRequest:
        request = pickle.loads(base64.b64decode(text))
        assert isinstance(request, ProfileRequest)
        return request
