"""Remember on disk which rung and weaving a kernel was compiled with, so that it is not searched for again.

Triton's own cache holds the woven kernel. A verdict serves where that misses: another selection of blocks or warps, a
source file whose lines moved, files that are read or written (`always_compile`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from warplens.frontends.triton.metadata_keys import RECIPE
from warplens.weave.fit.resources import Resources

_FILE = "warplens-verdict.json"
_OURS = ("hash", RECIPE)
"""Metadata that differs with the recipe, which is part of the key without what does not matter."""
_LOCATION = re.compile(r"^#loc.*\n|\s+loc\([^\n]*\)$", re.M)


@dataclass(frozen=True)
class Verdict:
    """The number of the rung that did no harm, the name of its weaving and the register limit (0: none), why the rungs
    above were left, and what the plain kernel takes if that was measured."""

    rung: int
    weaving: str
    registers: int
    problem: str
    plain: Resources | None


class Verdicts:
    """The verdict about one kernel, in Triton's cache folder."""

    def __init__(self, recipe_key: str, text: str, metadata: dict[str, Any]) -> None:
        plain = {k: str(v) for k, v in sorted(metadata.items()) if isinstance(v, str | int | float) and k not in _OURS}
        parts = (recipe_key, _LOCATION.sub("", text), str(metadata.get("target")), plain)
        self._key = hashlib.sha256(repr(parts).encode()).hexdigest()

    def find(self) -> Verdict | None:
        path = self._manager().get_file(_FILE)
        try:
            found = json.loads(Path(path).read_text()) if path else None
            if found is None:
                return None
            plain = found["plain"] and Resources(**{one.name: found["plain"][one.name] for one in fields(Resources)})
            rung, registers = int(found["rung"]), int(found["registers"])
            return Verdict(rung, str(found["weaving"]), registers, str(found["problem"]), plain or None)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # another version wrote it, or it was cut off: search again

    def keep(self, verdict: Verdict) -> None:
        self._manager().put(json.dumps(asdict(verdict)), _FILE, binary=False)

    def _manager(self) -> Any:
        from triton.runtime.cache import get_cache_manager

        return get_cache_manager(self._key)
