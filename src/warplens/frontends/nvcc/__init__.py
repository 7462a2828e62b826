"""`warplens nvcc`: nvcc, with marks woven into the PTX between its compiler and its assembler."""
