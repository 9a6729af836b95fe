"""Measuring on other machines: workers of a Dask scheduler in the place of this one.

`Farm` is what a run needs of them, `FarmMeasurer` what a search does. Dask itself is known to
`engine` alone.
"""
