"""PTX that a compiler outside this process assembled, kept so that the machine code it became can be woven."""
