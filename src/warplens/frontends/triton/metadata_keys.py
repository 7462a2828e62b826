"""The keys that warplens adds to the metadata of a compiled kernel."""

METADATA = "warplens"
"""How the kernel is woven."""
REMARKS = "warplens_remarks"
"""What to tell the user about the kernel."""
RECIPE = "warplens_recipe"
"""What stands in a woven kernel's cache key besides Triton's own parts."""
