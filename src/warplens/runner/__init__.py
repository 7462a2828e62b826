"""Running a program as Python would, and what `warplens run` keeps beside it."""
