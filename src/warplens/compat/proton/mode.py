"""Proton's instrumentation modes, as objects and as strings, and the matching options of `wl.profile`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from warplens.errors import UsageError, check_name, did_you_mean
from warplens.record.layout import SLOT_BYTES

METRIC_TYPES = ("cycle",)
BUFFER_STRATEGIES = ("circular", "flush")
BUFFER_TYPES = {"": "global", "global": "global", "shared": "shared", "shared_mem": "shared"}
SAMPLING_STRATEGIES = ("none", "selective")
GRANULARITIES = {"cta": "block", "warp": "warp", "warp_4": "warpgroup", "warp_group": "warpgroup"}
OPTIMIZATIONS = ("clock32", "time_shift", "sched_stores", "sched_barriers")


@dataclass(frozen=True)
class BaseMode:
    name: str


@dataclass(frozen=True)
class InstrumentationMode(BaseMode):
    """The settings of Proton's instrumentation backend.

    `buffer_size` is in bytes per block; 0 lets warplens choose. Without a `buffer_type`, records are stored in global
    memory, which keeps all of them.
    """

    metric_type: str = "cycle"
    sampling_strategy: str = "none"
    sampling_options: str = ""
    granularity: str = "warp"
    buffer_strategy: str = "circular"
    buffer_type: str = ""
    buffer_size: int = 0
    optimizations: Any = ()

    def __post_init__(self) -> None:
        for name, allowed in (
            ("metric_type", METRIC_TYPES),
            ("sampling_strategy", SAMPLING_STRATEGIES),
            ("granularity", GRANULARITIES),
            ("buffer_strategy", BUFFER_STRATEGIES),
            ("buffer_type", BUFFER_TYPES),
        ):
            # Proton's own enumerations are accepted by their names.
            value = getattr(self, name)
            value = value if isinstance(value, str) else getattr(value, "name", str(value)).lower()
            object.__setattr__(self, name, value)
            if value not in allowed:
                raise UsageError(f"proton mode: {name}={value!r} is not supported (allowed: {_listed(allowed)})")
        chosen = self.optimizations.split(",") if isinstance(self.optimizations, str) else self.optimizations
        names = tuple(word for word in (str(item).strip() for item in chosen) if word)
        for word in names:
            check_name(f"proton mode: unknown optimization {word!r}", word, OPTIMIZATIONS)
        object.__setattr__(self, "optimizations", names)
        if self.buffer_size < 0:
            raise UsageError(f"proton mode: buffer_size={self.buffer_size}: expected a number of bytes, or 0")
        self._warps()

    def __str__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        values["optimizations"] = ",".join(self.optimizations)
        return ":".join([self.name, *(f"{name}={value}" for name, value in values.items())])

    def options(self) -> dict[str, Any]:
        """Return the matching options of `wl.profile`."""
        options: dict[str, Any] = {"granularity": GRANULARITIES[self.granularity]}
        warps = self._warps()
        if warps is not None:
            options |= {"granularity": "warp", "warps": warps}
        if BUFFER_TYPES[self.buffer_type] == "shared":
            options |= {"buffer": "shared"}
        if self.buffer_size:
            options |= {"bytes_per_block": max(self.buffer_size, SLOT_BYTES)}
        if self.buffer_strategy == "circular" and (self.buffer_size or BUFFER_TYPES[self.buffer_type] == "shared"):
            options |= {"full": "ring"}
        return options

    def _warps(self) -> list[int] | None:
        words = [word.strip() for word in self.sampling_options.split(",") if word.strip()]
        if self.sampling_strategy == "none" or not words:
            return None
        if not all(word.isdigit() for word in words):
            raise UsageError(
                f"proton mode: sampling_options={self.sampling_options!r}: expected warp numbers, such as '0,1,2,3'"
            )
        if self.granularity != "warp":
            raise UsageError(
                f"proton mode: sampling_options={self.sampling_options!r} with granularity={self.granularity!r}: "
                "sampling warps needs granularity 'warp'"
            )
        return sorted({int(word) for word in words})


@dataclass(frozen=True)
class Default(InstrumentationMode):
    """The default mode."""

    name: str = field(default="default", init=False)


@dataclass(frozen=True)
class MMA(InstrumentationMode):
    """Proton's mode for kernels with tensor cores; warplens records them like any other."""

    name: str = field(default="mma", init=False)


_NAMED = {"default": Default, "mma": MMA}


def parse(mode: str | BaseMode | None) -> InstrumentationMode:
    """Parse the argument of `proton.start(mode=...)`: None, an object, or `default:key=value:...`."""
    if isinstance(mode, InstrumentationMode):
        return mode
    if mode is not None and not isinstance(mode, str):
        # A mode object created by Proton itself.
        if not hasattr(mode, "sampling_options"):
            raise UsageError(
                f"proton mode {mode!r} does not belong to the instrumentation backend; use mode.Default(...)"
            )
        return Default(**{f.name: getattr(mode, f.name) for f in fields(InstrumentationMode) if f.name != "name"})
    name, *pairs = (mode or "default").split(":")
    if name not in _NAMED:
        raise UsageError(f"proton mode {name!r} is not supported (allowed: {_listed(_NAMED)})")
    known = [f.name for f in fields(InstrumentationMode) if f.name != "name"]
    given: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or key not in known:
            raise UsageError(f"proton mode: {pair!r} is not key=value with a known key{did_you_mean(key, known)}")
        given[key] = value
    if "buffer_size" in given:
        if not given["buffer_size"].isdigit():
            raise UsageError(f"proton mode: buffer_size={given['buffer_size']!r}: expected a number of bytes")
        given["buffer_size"] = int(given["buffer_size"])
    return _NAMED[name](**given)


def _listed(allowed: Any) -> str:
    return ", ".join(repr(name) for name in allowed if name)
