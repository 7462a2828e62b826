"""The path triton_dist has its profiler under."""
