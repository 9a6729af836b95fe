"""The models that ship with the package: one file for each target."""
