"""`iris cluster`: start, stop, validate, configure, debug."""
