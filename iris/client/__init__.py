"""How programs and people talk to a cluster."""
