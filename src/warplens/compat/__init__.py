"""Drop-ins: code written for other in-kernel profilers runs with only its import changed."""
