"""One room for each compiler or library whose kernels warplens records, and the import hook that attaches them."""
