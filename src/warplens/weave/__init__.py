"""From PTX with inert marks to PTX that records: parse, rewrite, and run on the CPU."""

from warplens.ptx.tree import Module, WeaveError, parse

__all__ = ["Module", "WeaveError", "parse"]
