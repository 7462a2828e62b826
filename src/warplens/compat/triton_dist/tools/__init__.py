"""The package of triton_dist that contains its profiler."""
