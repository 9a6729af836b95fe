"""Analytic costs and features: what is known of a schedule before it runs."""
