"""PyTorch's own trace: read it, match its kernels to launches, align its clock, sum up its operators."""
