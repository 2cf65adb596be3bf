"""Commands for submitted jobs."""
