"""Where tiles lie in shared memory and registers, as the layout synthesis finds it."""
