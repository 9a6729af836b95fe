"""Which block computes which tile when, and how blocks that share a sum meet."""
