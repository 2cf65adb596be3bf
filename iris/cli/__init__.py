"""The command line: one click module for each noun, and modules that format their results as tables
and JSON. Open `main.py` first: it lists the commands and turns errors into messages and exit codes.
Must not decide anything about jobs or machines, which is the client's task, nor import heavy
modules before a command needs them.
"""
