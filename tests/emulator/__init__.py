"""Runs the text of CUDA kernels on the host: a machine of threads, barriers and late copies."""
