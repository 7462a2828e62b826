"""A profiler for agents that write kernels: bounded answers about traces, over the Model Context Protocol."""
