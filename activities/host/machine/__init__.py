"""The resources of this host: disks, GPUs, ports, and their use."""
