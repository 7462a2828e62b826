"""Automatic marks in TTGIR, Triton's IR after all of its own passes: the kernel is optimised before it is marked."""

from warplens.auto.ttgir.ttgir_marker import MarkedIR, mark_ttgir

__all__ = ["MarkedIR", "mark_ttgir"]
