"""PyTorch's traces: read them, match their kernels to launches, align the clocks, and summarise the operators."""
