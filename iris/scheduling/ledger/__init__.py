"""The ledger: the scheduler's state, and its changes."""
