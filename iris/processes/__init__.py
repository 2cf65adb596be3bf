"""Processes of this machine: child processes, ports, locks and signals."""
