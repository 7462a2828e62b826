"""TileLang: its kernels pass the driver's hooks. The PTX is compiled anew from what TileLang lowers once more, with the
lines of the Python source and with the regions that are marked in it."""
