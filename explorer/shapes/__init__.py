"""Extents that are not known before: families of workloads, their search, what is chosen for each.

`extents` are values of an argument, `family` the workloads that differ in them, `fitted` carries a
schedule to other extents, `cover` chooses few schedules for many shapes, `tuning` is the search,
`known` finds what it left in the records, `exporting` writes kernels of several extents.
"""
