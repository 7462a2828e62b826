"""Front ends: one module or package per compiler or library, and the import hook that attaches them."""
