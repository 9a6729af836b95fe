"""Layouts as people see them: pictures, and solutions of the synthesis in words."""
