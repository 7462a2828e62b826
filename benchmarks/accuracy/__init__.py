"""How right the numbers are on this GPU: lengths, placement, changing clocks, long kernels."""
