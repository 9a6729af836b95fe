"""Learned cost models over schedule spaces. Imports nothing heavy until a model is fitted."""
