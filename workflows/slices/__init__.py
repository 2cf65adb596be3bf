"""The workflow of a slice, and the registry of slices."""
