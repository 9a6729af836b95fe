"""Facts of cards and of their instructions, as rows of data."""
