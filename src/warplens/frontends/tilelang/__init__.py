"""TileLang: its kernels pass the driver's hooks. The PTX is compiled from a second lowering by TileLang, with the
lines of the Python source and with the regions that are marked in it."""
