"""The specification: pure tests at the root, those that need a server in folders of their own."""
