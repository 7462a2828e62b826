"""Folders of the repository that tests read from."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
SHIM = SUPPORT / "shim"
"""A CUDA runtime of threads for g++, and the kernels that it runs."""
EXAMPLES = ROOT / "examples"
