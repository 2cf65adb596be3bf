"""The commands of identities: `iris user`, `iris whoami` and `iris cluster access`."""
