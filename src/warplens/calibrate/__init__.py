"""What marks cost on the GPU in use, measured with kernels of known length."""
