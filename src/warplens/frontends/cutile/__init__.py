"""cuTile: its kernels pass the driver's hooks. The PTX is what its compiler hands to ptxas, and woven PTX is assembled
as its compiler would, with the code that the driver runs on the host at each launch."""
