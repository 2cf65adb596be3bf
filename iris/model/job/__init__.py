"""A job: its specification, states, attempts, gangs, arrays."""
