"""Place SM clock cycles on the GPU's nanosecond timer, with the error of the placement."""
