"""How marks in Triton kernels become records: the marks, the compile hook, the launch path, the interpreter."""
