"""One schedule of a kernel worked out: tiles, rings, shared memory, as numbers."""
