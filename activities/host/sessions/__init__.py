"""Sessions with a running task through the object store: exec, port forwarding, profiles."""
