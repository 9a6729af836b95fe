"""The texts of kernels, by what multiplies in them."""
