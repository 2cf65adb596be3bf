"""How a program is run on a host."""
