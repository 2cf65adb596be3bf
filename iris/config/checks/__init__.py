"""Checks of a configuration whose sections are valid by themselves: contradictions, and risks."""
