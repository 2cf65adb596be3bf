"""The environment of a program: Python, packages, set-up commands, secrets."""
