"""Kernels: one file each, all behind one interface (see base.py)."""
