"""A stand-in for `systemctl --user` on a machine: it starts and ends the processes of unit files,
as far as Iris asks for it.
"""

#: The program. It keeps enabled units and processes in `.systemd` of the home directory, and
#: refuses what it does not know.
SYSTEMCTL = '''#!/usr/bin/env python3
import os, pathlib, shlex, signal, subprocess, sys, time

home = pathlib.Path(os.environ["HOME"])
units, kept = home / ".config/systemd/user", home / ".systemd"
kept.mkdir(exist_ok=True)

def pid_of(unit):
    """The process of a unit, if it runs."""
    try:
        pid = int((kept / f"{unit}.pid").read_text())
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return 0
    return 0 if state == "Z" else pid

def start(unit):
    lines = [line.partition("=") for line in (units / unit).read_text().splitlines() if "=" in line]
    set_ = {key: value for key, _, value in lines}
    env = os.environ | dict(each.split("=", 1) for each in shlex.split(set_["Environment"]))
    output = open(set_["StandardOutput"].removeprefix("append:"), "ab")
    process = subprocess.Popen(
        shlex.split(set_["ExecStart"]), cwd=set_["WorkingDirectory"], env=env, stdin=subprocess.DEVNULL, stdout=output,
        stderr=output, start_new_session=True)
    (kept / f"{unit}.pid").write_text(str(process.pid))

def stop(unit):
    if pid := pid_of(unit):
        os.kill(pid, signal.SIGTERM)
        while pid_of(unit):
            time.sleep(0.01)

match [each for each in sys.argv[1:] if each not in ("--user", "--quiet", "--value")]:
    case ["daemon-reload"]:
        pass
    case ["show", unit, "--property=ActiveState"]:
        print("active" if pid_of(unit) else "inactive")
    case ["show", unit, "--property=MainPID"]:
        print(pid_of(unit))
    case ["enable", unit]:
        assert "WantedBy=default.target" in (units / unit).read_text()
        (kept / f"{unit}.enabled").touch()
    case ["disable", "--now", unit]:
        (kept / f"{unit}.enabled").unlink(missing_ok=True)
        stop(unit)
    case ["restart", unit]:
        stop(unit)
        start(unit)
    case ["stop", unit]:
        stop(unit)
    case ["boot"]:
        for each in kept.glob("*.enabled"):
            start(each.stem)
    case other:
        sys.exit(f"not a command of this stand-in: {other}")
'''
