"""What several benchmarks share. Not scripts."""
