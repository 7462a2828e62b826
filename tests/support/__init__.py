"""Helpers that several tests share: builders, fakes, kernels and expected results. No tests."""
