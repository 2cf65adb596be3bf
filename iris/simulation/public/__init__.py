"""Reads public traces of GPU clusters as workloads. Each module has one source; `formats` finds out
which one a text is, and `jobs` makes the workload.

`docs/workloads.md` says what becomes of each field, and what is lost.
"""
