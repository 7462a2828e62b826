"""Automatic marks in TTGIR, Triton's GPU IR, after all of Triton's passes have optimised the kernel."""

from warplens.auto.ttgir.ttgir_marker import MarkedIR, mark_ttgir

__all__ = ["MarkedIR", "mark_ttgir"]
