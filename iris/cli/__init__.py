"""The command line."""

#: Set by `main.main`: this process ends with its command.
ends_with_command = False
