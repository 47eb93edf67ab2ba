"""How far results are from fp64, and whether their bits repeat: by kernel, and by method and number of ranks."""
