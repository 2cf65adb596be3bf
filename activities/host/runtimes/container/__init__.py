"""Programs in containers."""
