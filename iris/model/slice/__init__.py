"""A slice: scale groups, provisioning, its lifecycle."""
