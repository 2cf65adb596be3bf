# Runs on a machine that Iris reaches over SSH, with `sh -s`. The caller assigns DIRECTORY (of Iris, in the home directory) and the
# variables of the function that it calls at the end. The machines of a cluster may share a home directory, so each has its own
# directory in that of Iris:
#
#   lease.json     the slice to which the machine is leased. It exists as long as the directory
#   slice.key      the private key of the slice
#   config.yaml    the configuration of the cluster
#   payload.keys   the keys with which the cluster encrypts payloads, if it does
#   secret.keys    the keys that open users' secrets
#   runtime/       Python packages with the agent; `digest` in it says which
#   agent/ cache/  the directories of the agent
#   agent.pid      the agent's process, its time of start and the boot of the machine
#   agent.log      the output of the agent
#   tunnel.port    the port at which the machine reaches the Temporal service
#   delete         a marker: the slice has to be deleted
#
# Nothing that the login prints is confused with an answer, which begins with the line iris:begin.
set -u
# What `start` leaves running has the user's own umask and locale.
own_umask=$(umask)
umask 077
# The caller knows the system's errors by their English texts.
locale=${LC_ALL-}
export LC_ALL=C
base=$HOME/$DIRECTORY
machine=$(uname -n)
home=$base/$machine

fail() {
    echo "iris:failed $*"
    exit 1
}

own_locale() { if [ -n "$locale" ]; then LC_ALL=$locale; else unset LC_ALL; fi; }

# Two operations on a machine never overlap, also if they come from different processes.
lock() {
    while true; do
        mkdir -p "$base" || fail "cannot create $base"
        exec 9< "$base" || fail "cannot open $base"
        if command -v flock > /dev/null; then
            flock -w 60 9 || fail "another operation of Iris on this machine did not end within 60 s"
        fi
        # Another machine may have removed the directory before it was locked: then the lock excludes no other operation.
        [ "$(stat -Lc %d:%i "$base" 2> /dev/null)" != "$(stat -Lc %d:%i /proc/self/fd/9 2> /dev/null)" ] || return 0
    done
}

# Removes what operations on this machine left that were cut off. The `@` is in no machine's name: another machine's may begin or end
# with this one's.
remove_rests() { rm -rf "$base/.new-$machine@"* "$base/.gone-$machine@"*; }

# born PID: prints when the process was started, in ticks since the boot; nothing if it does not run.
born() {
    sed 's/.*) //' "/proc/$1/stat" 2> /dev/null | awk '$1 != "Z" { print $20 }'
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }

# Returns 0 if the agent runs, whose process is then $pid.
agent_runs() {
    [ -f "$home/agent.pid" ] && read -r pid start boot < "$home/agent.pid" || return 1
    [ "$boot" = "$(boot_id)" ] && [ -n "$start" ] && [ "$(born "$pid")" = "$start" ]
}

# Returns 0 if the packages in the directory $1 of $home can be used: they are complete, and the Python that they were installed
# with is still there.
packages_work() {
    [ -f "$home/$1/digest" ] || return 1
    version=$("$home/$1/bin/python" -I -S -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2> /dev/null)
    [ -n "$version" ] && [ -d "$home/$1/lib/$version" ]
}

look() {
    echo iris:begin
    if [ -f "$home/lease.json" ]; then
        echo "lease=$(base64 < "$home/lease.json" | tr -d '\n')"
        if [ -e "$home/delete" ]; then echo "delete=1"; fi
        if packages_work runtime; then echo "runtime=$(cat "$home/runtime/digest")"; fi
        if [ -f "$home/tunnel.port" ]; then echo "port=$(cat "$home/tunnel.port")"; fi
        echo "keys=$(keys_digest)"
        if [ -f "$home/agent.pid" ]; then echo "started=1"; fi
        if agent_runs; then echo "agent=1"; fi
    fi
    echo iris:end
}

# Leases the machine: LEASE is the content of lease.json in base64, KEY the private key. One rename creates the directory, so a
# machine never has two leases. An existing lease stays.
lease() {
    lock
    new=$base/.new-$machine@$$
    remove_rests
    mkdir "$new" || fail "cannot create $new"
    { echo "$LEASE" | base64 -d > "$new/lease.json" && echo "$KEY" > "$new/slice.key"; } || { rm -rf "$new"; fail "cannot write $new"; }
    mv -T "$new" "$home" 2> /dev/null || rm -rf "$new"
    look
}

# Checks that the machine can run the agent, with the variables of `check_machine`.
check() {
    if [ ! -f "$home/lease.json" ] || [ -e "$home/delete" ]; then
        look # the slice is being deleted, or is gone
        return
    fi
    check_machine
    look
}

# Checks that the machine can run an agent or a control plane: MACHINE is the processor's architecture, PYTHON the version of Python,
# SPACE the kilobytes that are needed in $home.
check_machine() {
    [ "$(uname -s) $(uname -m)" = "Linux $MACHINE" ] ||
        fail "the machine is $(uname -s) $(uname -m), and the control plane's packages are for Linux $MACHINE"
    find_python || fail "the machine has no Python $PYTHON, which the control plane's packages need; install python$PYTHON there"
    free=$(df -Pk "$home" 2> /dev/null | awk 'NR == 2 { print $4 }')
    # It is empty if the slice was deleted meanwhile.
    [ "${free:-$SPACE}" -ge "$SPACE" ] ||
        fail "the disk of $home has $((free / 1024)) MiB free, and $((SPACE / 1024)) MiB are needed"
}

find_python() {
    for python in "python$PYTHON" python3 "/usr/local/bin/python$PYTHON" "/usr/bin/python$PYTHON"; do
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
        [ "$version" = "$PYTHON" ] && return 0
    done
    return 1
}

# Reports what the machine has, for a new configuration. PYTHON is the version that the agent needs, STORE a directory that should be
# shared, with the name of a file there (both empty: none). Leaves nothing on the machine.
survey() {
    echo iris:begin
    echo "system=$(uname -s) $(uname -m)"
    if find_python; then echo "python=$PYTHON"; else echo "other=$(python3 --version 2> /dev/null)"; fi
    echo "clock=$(date +%s)"
    echo "cores=$(nproc)"
    echo "memory=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)"
    echo "disk=$(df -Pk "$HOME" | awk 'NR == 2 { print $4 }')"
    if command -v nvidia-smi > /dev/null; then
        queried=$(timeout 30 $NVIDIA_QUERY 2>&1)
        code=$?
        listed=$(timeout 30 $NVIDIA_LIST 2>&1)
        echo "nvidia=$code"
        echo "queried=$(echo "$queried" | base64 | tr -d '\n')"
        echo "listed=$(echo "$listed" | base64 | tr -d '\n')"
    fi
    chips=$(ls -d /dev/accel[0-9]* 2> /dev/null | wc -l)
    if [ "$chips" -gt 0 ] || [ -d /dev/vfio ]; then echo "tpu=$(tpu_type)"; fi
    if [ ! -w "$HOME" ]; then echo "readonly=$HOME"; fi
    if [ -n "$STORE" ]; then
        if [ ! -d "$STORE" ]; then echo "store=does not exist"
        elif [ ! -e "$STORE/$SHARED" ]; then echo "store=is not the directory of this machine"
        elif [ ! -w "$STORE" ]; then echo "store=is not writable for $(id -un)"; fi
    fi
    if [ -f "$home/lease.json" ]; then echo "lease=$(base64 < "$home/lease.json" | tr -d '\n')"; fi
    echo iris:end
}

# Prints the name of the machine's TPU slice, such as v5litepod-4; nothing if the machine is not Google's or has no TPU.
tpu_type() {
    from=http://169.254.169.254/computeMetadata/v1/instance/attributes/accelerator-type
    curl -sf -m 2 -H 'Metadata-Flavor: Google' "$from" 2> /dev/null || wget -qO- -T 2 -t 1 --header 'Metadata-Flavor: Google' "$from" 2> /dev/null
}

# Unpacks runtime.tgz as the directory $1 of $home: DIGEST is that of the file.
unpack_runtime() {
    find_python || fail "the machine has no Python $PYTHON"
    sum=$(sha256sum "$home/runtime.tgz" | cut -d' ' -f1)
    [ "$sum" = "$DIGEST" ] || fail "the packages arrived damaged: sha256 $sum, expected $DIGEST"
    rm -rf "$home/$1"
    reason=$("$python" -m venv --without-pip "$home/$1" 2>&1) || fail "$python -m venv failed: $reason"
    reason=$(tar -xzf "$home/runtime.tgz" -C "$home/$1" 2>&1) || fail "the packages could not be unpacked: $reason"
    rm -f "$home/runtime.tgz"
    echo "$DIGEST" > "$home/$1/digest" || fail "cannot write $home/$1/digest"
}

# Installs the packages in runtime.tgz: DIGEST is that of the file. Half an installation is not used, because the digest comes last.
# An agent with earlier packages ends, and its programs wait for the next one.
install() {
    lock
    if [ ! -f "$home/lease.json" ] || [ -e "$home/delete" ]; then
        rmdir "$base" 2> /dev/null # the lock has created it again
        look # the slice is being deleted, or is gone
        return
    fi
    unpack_runtime runtime.new
    if agent_runs; then end_agent "use other packages"; fi
    rm -rf "$home/runtime" && mv -T "$home/runtime.new" "$home/runtime" || fail "cannot replace $home/runtime"
    look
}

# Replaces the files of keys by PAYLOAD_KEYS, SECRET_KEYS and MESSAGE_KEY, their contents in base64; empty: there is none. The caller
# sends them on standard input, and `echo` is no program: no command line and no environment has them.
write_keys() {
    write_key_file payload.keys "$PAYLOAD_KEYS"
    write_key_file secret.keys "${SECRET_KEYS:-}"
    write_key_file message.key "${MESSAGE_KEY:-}"
}

write_key_file() {
    if [ -z "$2" ]; then
        rm -f "$home/$1"
        return
    fi
    { echo "$2" | base64 -d > "$home/$1.new" && mv -f "$home/$1.new" "$home/$1"; } || fail "cannot write $home/$1"
}

# Gives the files of keys that there are to the processes that are started from now on.
use_keys() {
    if [ -f "$home/payload.keys" ]; then export IRIS_PAYLOAD_KEYS="$home/payload.keys"; fi
    if [ -f "$home/secret.keys" ]; then export IRIS_SECRET_KEYS="$home/secret.keys"; fi
    if [ -f "$home/message.key" ]; then export IRIS_MESSAGE_KEY="$home/message.key"; fi
}

# The digest of the files of keys together; nothing for none.
keys_digest() {
    if [ -f "$home/payload.keys" ] || [ -f "$home/secret.keys" ] || [ -f "$home/message.key" ]; then
        cat "$home/payload.keys" "$home/secret.keys" "$home/message.key" 2> /dev/null | sha256sum | cut -d' ' -f1
    fi
}

# has_keys FILE CONTENT: whether the file of keys has this content, in base64; empty: there is no file.
has_keys() {
    if [ -z "$2" ]; then [ ! -f "$home/$1" ]; else [ "$(base64 < "$home/$1" 2> /dev/null | tr -d '\n')" = "$2" ]; fi
}

# Ends the agent $pid, and leaves its programs running. $1 is what that is for.
end_agent() {
    kill -HUP "$pid"
    for _ in $(seq 100); do
        agent_runs || return 0
        sleep 0.1
    done
    fail "the agent (process $pid) did not end within 10 s, so that it can $1; end it with: kill -KILL $pid"
}

# Starts the agent, unless it runs: AGENT is its command line after the Python, CONFIG the configuration in base64, PORT the port of
# the tunnel (empty: there is none), PAYLOAD_KEYS, SECRET_KEYS and MESSAGE_KEY as in `write_keys`. An agent with another port, other
# payload keys or another message key is started again, which leaves its programs running. It reads the keys for secrets at each use.
start() {
    lock
    if [ ! -f "$home/lease.json" ] || [ -e "$home/delete" ]; then
        rmdir "$base" 2> /dev/null # the lock has created it again
        look # the slice is being deleted, or is gone
        return
    fi
    before=$(cat "$home/tunnel.port" 2> /dev/null)
    echo "$CONFIG" | base64 -d > "$home/config.yaml" || fail "cannot write $home/config.yaml"
    if agent_runs; then
        if [ "$before" = "$PORT" ] && has_keys payload.keys "$PAYLOAD_KEYS" && has_keys message.key "${MESSAGE_KEY:-}"; then
            if [ -f "$home/secret.keys" ] && [ -n "${SECRET_KEYS:-}" ]; then write_key_file secret.keys "$SECRET_KEYS"; fi
            if has_keys secret.keys "${SECRET_KEYS:-}"; then
                look
                return
            fi
        fi
        # A second agent would end at once, and take the place of the first one in agent.pid.
        end_agent "use another tunnel or other keys"
    fi
    echo "$PORT" > "$home/tunnel.port" || fail "cannot write $home/tunnel.port"
    write_keys
    cd "$home" || fail "cannot enter $home"
    eval "set -- $AGENT"
    own_locale
    use_keys
    # The log is opened first, and so is private.
    { umask "$own_umask" && exec setsid nohup "$home/runtime/bin/python" "$@"; } >> "$home/agent.log" 2>&1 < /dev/null 9<&- &
    echo "$! $(born $!) $(boot_id)" > "$home/agent.pid" || fail "cannot write $home/agent.pid"
    look
}

# Requests the deletion of slice SLICE.
mark() {
    lock
    if is_leased_to "$SLICE"; then
        touch "$home/delete" || fail "cannot write $home/delete"
        if agent_runs; then kill -TERM "$pid"; fi
    fi
    rmdir "$base" 2> /dev/null # the lock has created it again, if no machine has a slice
    look
}

is_leased_to() { [ -f "$home/lease.json" ] && grep -q "\"slice_id\":\"$1\"" "$home/lease.json"; }

# Deletes slice SLICE: waits for the agent, at most GRACE seconds since the request, and then removes everything. HOST is the id of
# the host, JOBS the directory of jobs with users of their own.
remove() {
    lock
    if ! is_leased_to "$SLICE" || [ ! -e "$home/delete" ]; then
        rmdir "$base" 2> /dev/null # the lock has created it again, if no machine has a slice
        look
        return
    fi
    if agent_runs; then
        if [ $(($(date +%s) - $(stat -c %Y "$home/delete"))) -lt "$GRACE" ]; then
            look
            return
        fi
        kill -KILL "$pid"
    fi
    # An agent is not in agent.pid if its start was cut off.
    for stray in $(grep -lzxF -e "$home/agent" /proc/[0-9]*/cmdline 2> /dev/null); do
        if grep -qzxF -e "$SLICE" "$stray" 2> /dev/null; then kill -KILL "$(echo "$stray" | cut -d/ -f3)" 2> /dev/null; fi
    done
    if [ -d "$home/agent" ] && packages_work runtime; then
        reason=$("$home/runtime/bin/python" -m iris.worker_agents.host.removal "$HOST" "$home/agent" 2>&1) ||
            fail "what jobs have left could not be removed: $(echo "$reason" | tail -n 1)"
    elif [ -d "$home/agent" ]; then
        kill_programs
    fi
    rm -rf "$JOBS"
    # The lease goes last: until then the next call finds the rest.
    find "$home" -mindepth 1 -maxdepth 1 ! -name lease.json ! -name delete -exec rm -rf {} +
    mv -T "$home" "$base/.gone-$machine@$$" || fail "cannot remove $home"
    remove_rests
    rmdir "$base" 2> /dev/null # other machines may share it
    look
}

# Kills what runs for jobs, as the module `removal` does, on a machine whose Python was replaced: with the id HOST in its environment,
# as a user of JOBS, and in containers.
kill_programs() {
    for found in $(grep -lzxF -e "IRIS_HOST_ID=$HOST" /proc/[0-9]*/environ 2> /dev/null); do
        kill -KILL "$(echo "$found" | cut -d/ -f3)" 2> /dev/null
    done
    for owner in $(stat -c %g "$JOBS"/attempts/* 2> /dev/null); do
        [ "$owner" != 0 ] || continue
        for found in $(stat -c '%u %n' /proc/[0-9]* 2> /dev/null | awk -v owner="$owner" '$1 == owner { print $2 }'); do
            kill -KILL "${found#/proc/}" 2> /dev/null
        done
    done
    if command -v docker > /dev/null; then
        docker ps --all --quiet --filter "label=iris.host=$HOST" 2> /dev/null | xargs -r docker rm --force > /dev/null 2>&1
    fi
}

output() {
    echo iris:begin
    if [ -f "$home/agent.log" ] && is_leased_to "$SLICE"; then echo "output=$(tail -c 1500 "$home/agent.log" | base64 | tr -d '\n')"; fi
    echo iris:end
}
