"""Plain kernels as CUDA: how the work of one is shared out, and its text."""
