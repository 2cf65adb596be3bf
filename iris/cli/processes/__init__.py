"""Hidden commands that run the processes of Iris."""
