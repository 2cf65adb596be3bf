"""The shell scripts that start a program in its container and keep the container until the
program's last process has ended.

A container ends with its first process, and the kernel then kills all others. The engine's init,
which is the first process, ends with its child. If the program were this child, a wrapper that
SIGTERM ends at once would take the grace of the program behind it. So the child is `SUPERVISE`,
which waits for all processes of the program:

    init ── SUPERVISE ── init ── BECOME, then the program ── …

The second init makes the program the leader of a process group, as it is outside of a container,
and passes signals on to this group. When the program's first process has ended and others are left,
the script writes the exit code into the pipe `CODE`, and looks again whenever a line comes from the
pipe `LOOK`: not every image has a `sleep`. The shim sends the lines, and it ends the container when
the time of what is left is over.

The scripts use only what every POSIX shell has built in. Processes of `iris exec` do not count: the
first process of their session has a parent outside of the container.
"""

from collections.abc import Sequence

SHELL = "/bin/sh"

#: Opens the output pipes, and reads the secrets from their pipe if there are any. Tells `SUPERVISE`
#: the program's process group by `LOOK`, and the shim by an empty line in `CODE` that signals reach
#: the program from now on. Then executes the program in its own place. The user's arguments are
#: parameters of the script: the shell never parses them.
BECOME = (
    'unset TINI_KILL_PROCESS_GROUP TINI_SUBREAPER; exec 2>>"$1"; [ ! -p "$2" ] || . "$2"; '
    '[ ! -p "$3" ] || echo $$ >"$3"; [ ! -p "$4" ] || echo >"$4"; shift 4; exec "$@" >>"$0"'
)

#: Makes the engine's init pass signals on to the whole process group of its child.
TO_ALL = {"TINI_KILL_PROCESS_GROUP": "1"}

#: Runs `BECOME` as $1, with the pipe `CODE` as $0, and waits until no process of the program is
#: left. A variable that it sets before would change one of that name that the job has, so these
#: begin as none of a job does.
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
        out: where the output goes, and `err`: the errors.
        secrets: the pipe with the secrets; it may be missing, as `code` and `look` may be.
        waits: keep the container until the program's last process has ended. That needs the
            engine's init.
    """
    become = [BECOME, out, err, secrets, look, code, *argv]
    return ["-c", SUPERVISE, code, *become] if waits else ["-c", *become]
