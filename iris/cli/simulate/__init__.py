"""Implements `iris simulate`: `command` has the options, `inputs` reads the files, `runs` runs the
simulations in processes, and `text` shows the answers.
"""
