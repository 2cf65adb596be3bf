"""The processes: wiring only."""
