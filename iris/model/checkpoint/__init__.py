"""Checkpoints: what Iris saves of a task's checkpoint directory, and what an attempt restores."""
