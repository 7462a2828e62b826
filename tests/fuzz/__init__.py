"""Fuzz targets: one module each, with `run(cases, seed)`. Run one with `python -m tests.fuzz TARGET`."""
