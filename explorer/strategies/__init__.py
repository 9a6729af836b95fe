"""Search strategies: each is one file behind `base.Strategy`, found by name in `base.REGISTRY`."""
