"""From a program to kernels: where it is cut, what the axes of each are, one schedule as numbers."""
