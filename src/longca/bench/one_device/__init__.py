"""Kernels on one device: a worker process per kernel, which checks and times."""
