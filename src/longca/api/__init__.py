"""The Python API: what the commands do, as functions that return objects. The command line is a layer over it."""
