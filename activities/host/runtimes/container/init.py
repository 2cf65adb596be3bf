"""The shell scripts that start a program in its container and keep the container until the
program's last process has ended.

A container ends with its first process, and the kernel then kills all others. The first process is
the engine's init, which ends with its child. If this child were a wrapper around the program,
SIGTERM would end the wrapper, the init and the program at once, without the program's grace. So the
child is `SUPERVISE`, which waits for all processes of the program:

    init ── SUPERVISE ── init ── BECOME, then the program ── …

The second init makes the program the leader of a process group, as it is outside of a container,
and passes signals on to this group. When the program's first process has ended and others are left,
the script writes the exit code into the pipe `CODE`. It then looks for processes whenever a line
comes from the pipe `LOOK`, because not every image has a `sleep`. The shim writes these lines, and
ends the container when the time of the processes that are left is over.

The scripts use only the built-in commands of a POSIX shell. Processes of `iris exec` do not count.
They are recognised because the first process of their session has a parent outside of the
container.
"""

from collections.abc import Sequence

#: The shell of the container in which the scripts `BECOME` and `SUPERVISE` run.
SHELL = "/bin/sh"
#: The shell script that starts the user's program. It opens the output pipes, and reads the secrets
#: from their pipe if there is one. It writes its process id, which is also the id of the program's
#: process group, into the pipe `LOOK`, where `SUPERVISE` reads it. It writes an empty line into the
#: pipe `CODE`: from now on, the shim's signals reach the program. At last it replaces itself with
#: the program (`exec`). The user's arguments are positional parameters, which no shell parses.
BECOME = (
    'unset TINI_KILL_PROCESS_GROUP TINI_SUBREAPER; exec 2>>"$1"; [ ! -p "$2" ] || . "$2"; '
    '[ ! -p "$3" ] || echo $$ >"$3"; [ ! -p "$4" ] || echo >"$4"; shift 4; exec "$@" >>"$0"'
)

#: The variable that tells the engine's init to pass signals on to the whole process group of its
#: child.
TO_ALL = {"TINI_KILL_PROCESS_GROUP": "1"}

#: The script that runs `BECOME` and waits until no process of the program is left. $0 is the pipe
#: `CODE`, and $1 is `BECOME`. Variables that the script sets before the program starts have names
#: that begin with IRIS_, as no variable of a job does. So the script overwrites no variable that
#: the program inherits from the job.
SUPERVISE = r"""
look() {
  all= strays=
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    pid=${line%% *}
    set -- ${line##*) }
    case $pid/$1 in 1/*|$$/*|*/[ZX]) continue;; esac
    group=$3
    if [ "$4" != 1 ] && { read -r line <"/proc/$4/stat"; } 2>/dev/null; then
      set -- ${line##*) }
      [ "$2" != 0 ] || continue
    fi
    all="$all $pid"
    [ "$group" = "$program" ] || strays="$strays $pid"
  done
  [ -n "$all" ]
}
IRIS_TOLD= IRIS_INIT=/sbin/docker-init
trap 'IRIS_TOLD=1' TERM
trap : HUP INT QUIT USR1 USR2
[ -x "$IRIS_INIT" ] || IRIS_INIT=/proc/1/exe
TINI_SUBREAPER=1 "$IRIS_INIT" -- /bin/sh -c "$@"
code=$? program=
look || exit $code
trap 'look && kill -TERM $all' TERM
exec 3<>"$5"
echo $code >"$0"
read -r program <&3
[ -z "$IRIS_TOLD" ] || { look; [ -z "$strays" ] || kill -TERM $strays; }
while look; do read -r line <&3 || :; done
exit $code
"""


def command(
    argv: Sequence[str], *, out: str, err: str, secrets: str, code: str, look: str, waits: bool
) -> list[str]:
    """Returns the arguments of the shell that starts the program.

    Args:
        out: the file or pipe for the standard output.
        err: the file or pipe for the standard error.
        secrets: the path of the pipe with the secrets. This pipe, `code` and `look` may not exist.
        code: the path of the pipe `CODE`.
        look: the path of the pipe `LOOK`.
        waits: True to keep the container until the program's last process has ended. That needs
            the engine's init.
    """
    become = [BECOME, out, err, secrets, look, code, *argv]
    return ["-c", SUPERVISE, code, *become] if waits else ["-c", *become]
