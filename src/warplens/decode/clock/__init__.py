"""Convert SM clock cycles to the GPU's nanosecond timer, with an estimate of the error."""
