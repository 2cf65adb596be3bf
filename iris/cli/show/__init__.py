"""Shows results in a terminal: tables, live progress, jobs, hosts."""
