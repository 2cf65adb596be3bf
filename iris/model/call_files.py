"""The names of the files of a function's call, and of those that it leaves in its task's output directory."""

#: The script of the call's directory that runs the function.
SCRIPT = "run.py"
#: Beside it: the path of the interpreter that runs it, on hosts that have this interpreter.
PYTHON = "python"
#: Where the result is in the task's output directory, in a folder that no user fetches.
FOLDER = ".iris"
RESULT = f"{FOLDER}/result"
#: Beside it: another attempt of the task would end in the same way.
FINAL = f"{FOLDER}/final"
