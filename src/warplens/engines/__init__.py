"""Questions about a dataset of any size: each part is answered alone, here or on a cluster, and the answers merge."""
