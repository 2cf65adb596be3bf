"""The shim: the parent process of a program, which outlives the agent."""
