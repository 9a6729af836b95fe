"""From a program to kernels: where it is cut, what the axes of each are, a schedule as numbers."""
