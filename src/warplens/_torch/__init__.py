"""PyTorch's profiler beside warplens: its trace read, put on one clock with the kernels' own, and summed up."""
