"""Run a program as Python would, and the companion tools of `warplens run`."""
