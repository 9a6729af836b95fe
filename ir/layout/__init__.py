"""Layouts as values, the layouts of the hardware, and their synthesis; usable without the rest."""
