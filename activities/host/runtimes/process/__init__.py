"""Programs as processes of this host."""
