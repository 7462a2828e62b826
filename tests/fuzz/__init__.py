"""Fuzz targets: damaged input of one kind each. Run one with `python -m tests.fuzz TARGET --cases N --seed S`."""
