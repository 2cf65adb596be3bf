"""Processes of this machine: children, ports, locks, signals."""
