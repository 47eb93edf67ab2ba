"""An own forward in Helion, PyTorch's language for kernels."""
