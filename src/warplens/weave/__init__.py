"""From PTX with inert marks to PTX that records: parse, rewrite, and run on the CPU."""

from warplens.weave.ptx import Module, WeaveError, parse

__all__ = ["Module", "WeaveError", "parse"]
