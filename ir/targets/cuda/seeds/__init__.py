"""Schedules to start from."""
