"""What touches the world: one deed each, every one safe to repeat."""
