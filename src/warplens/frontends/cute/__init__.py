"""How marks in CuTe DSL kernels become records: their PTX, the kernel being traced, the buffer argument, the launch."""
