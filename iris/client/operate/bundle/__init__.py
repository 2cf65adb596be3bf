"""Collects the content of `iris debug bundle`: one archive for the report of a fault.

`redaction.py` decides which texts are hidden, `archive.py` bounds time and size, and the other
modules read: this machine, its logs, and the Temporal service.
"""
