"""Builds the specification of a job from what its user asks for, and uploads its files."""
