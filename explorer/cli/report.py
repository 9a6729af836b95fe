"""tilewright report."""
