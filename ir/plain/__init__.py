"""Plain kernels: loops over scalars, the way to compute what no other lowering has a form for."""
