"""Reads the stored logs of jobs and of host agents.

Open `stored.py` first; `reading.py` follows many logs at once. Everything comes from the store, so
this needs neither a host nor a control plane.
"""
