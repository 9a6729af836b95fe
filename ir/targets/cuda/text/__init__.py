"""What all kernels' texts are made of: values in registers, loads, stores, scalars, loops."""
