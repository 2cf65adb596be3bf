"""Explains why a job waits, and for how long."""
