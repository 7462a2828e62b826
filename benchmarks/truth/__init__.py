"""The truth set: kernels in pairs, broken for one known reason and repaired, that the findings are judged by."""
