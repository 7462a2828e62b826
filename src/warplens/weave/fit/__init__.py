"""The search for a weaving that does the kernel no harm: registers, spills, blocks per SM."""
