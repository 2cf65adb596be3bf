"""Attempts of tasks on this host: preparation, program, heartbeat, outcome."""
