"""Drop-in replacements: code written for other in-kernel profilers runs with only its import changed."""
