"""The scheduler's workflow."""
