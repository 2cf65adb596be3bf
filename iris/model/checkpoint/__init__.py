"""Checkpoints: what is saved of a task's checkpoint directory, and what an attempt restores."""
