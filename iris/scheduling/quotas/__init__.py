"""Quotas: what users, teams and tagged jobs may hold, and what they lend each other.

Open `table.py` first (which quotas cover a gang), then `use.py` (what is left of them). `gate.py`
has the part of the scheduling pass, `reclaim.py` takes back what was borrowed.
"""
