"""Fuzz targets: one module each, with `case(draw, folder)`. Run one with `python -m tests.fuzz TARGET`."""
