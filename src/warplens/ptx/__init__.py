"""PTX as data: parse, print, control flow and divergence. Knows no marks."""
