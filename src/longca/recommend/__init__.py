"""Recommending a kernel, or a method on many GPUs, from results alone."""
