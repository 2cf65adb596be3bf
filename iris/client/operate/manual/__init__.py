"""The control plane and hosts on the user's own machines, over SSH."""
