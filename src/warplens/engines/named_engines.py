"""The engines that a user can name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warplens.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from warplens.engines.part_work import PartEngine

LOCAL, SPARK = "local", "spark"
ALIASES = {"duckdb": LOCAL}
"""Names that mean another engine: pyarrow reads datasets faster than DuckDB does (docs/scale.md)."""
NAMES = (LOCAL, SPARK)


def engine_named(name: str) -> PartEngine:
    """The engine of a name: `local`, `spark`, or `spark:MASTER` such as `spark:local[2]`."""
    kind, _, master = name.partition(":")
    kind = ALIASES.get(kind, kind)
    if kind not in NAMES or (master and kind != SPARK):
        raise UsageError(f"--engine {name}: unknown engine{did_you_mean(kind, NAMES)}")
    if kind == SPARK:
        from warplens.engines.spark_engine import SparkEngine

        return SparkEngine(master)
    from warplens.engines.local_engine import LocalEngine

    return LocalEngine()
