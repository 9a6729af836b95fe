"""Decisions and rules: what may be chosen of a kernel, and what each choice needs."""
