"""Commands next to running tasks, profiles of them, and ports forwarded to them."""
