"""A job: its specification, its tasks and attempts, its states, and what it is made of."""
