"""The control plane on this machine."""
