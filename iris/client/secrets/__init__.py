"""Secrets of users: sealed on the user's machine, and kept by name."""
