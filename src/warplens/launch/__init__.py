"""Launches of woven kernels, whoever makes them: a buffer for each, the way home, and what the marks cost."""
