"""The CUDA driver: modules, memory, streams and events, straight from libcuda; and what devices can hold."""
