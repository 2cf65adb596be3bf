"""Reads the stored logs of jobs and of host agents.
Open `stored.py` first; `reading.py` follows many logs at once.
Must not need a host or a control plane: everything comes from the store."""
