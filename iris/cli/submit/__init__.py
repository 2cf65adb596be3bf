"""Commands that submit: one job, a file, a batch, a schedule."""
