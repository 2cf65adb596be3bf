"""The control plane on a VM of Google Cloud."""
