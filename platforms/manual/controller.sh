# Runs after host.sh on the machine of a control plane. The caller also assigns CLUSTER, the name of the cluster. The directory of
# the cluster is in that of all control planes of the login user:
#
#   uid             the uid of the cluster
#   config.yaml     the configuration, exactly as it was written
#   payload.keys    the keys with which the cluster encrypts payloads, if it does
#   runtime/        Python packages with the control plane; `digest` in it says which
#   runtime.new/    those that the next start uses, if they are others
#   state/          the state directory of Iris, with the jobs
#   manager         what keeps the control plane running: system, user (both systemd) or none
#   agent.pid       without systemd: the process, its time of start and the boot of the machine
#   supervisor.log  the output of the control plane's supervisor
home=$base/$CLUSTER
unit=iris-$CLUSTER.service
kept=$home/state/clusters/$CLUSTER

# fail_with TEXT: as `fail`, with a text of several lines.
fail_with() {
    printf '%s\n' "$1" | sed 's/^/iris:failed /'
    exit 1
}

# Decides what keeps the control plane running. An earlier decision stays.
find_manager() {
    if [ -f "$home/manager" ]; then
        read -r manager < "$home/manager"
    else
        manager=none
        if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then
            manager=system
        elif [ -d /run/systemd/system ] && user_systemd show-environment > /dev/null 2>&1 && lingers; then
            manager=user
        fi
    fi
    case $manager in
        system) units=/etc/systemd/system target=multi-user.target ;;
        user) units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user target=default.target ;;
    esac
}

user_systemd() { XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)} systemctl --user "$@"; }

# Without lingering, systemd ends what a user runs when the user's last login ends.
lingers() {
    [ "$(loginctl show-user "$(id -un)" --property=Linger --value 2> /dev/null)" = yes ] || loginctl --no-ask-password enable-linger 2> /dev/null
}

systemd() { if [ "$manager" = system ]; then systemctl "$@"; else user_systemd "$@"; fi; }

# Returns 0 if the supervisor runs, whose process is then $pid.
runs() {
    if [ "$manager" = none ]; then
        agent_runs
    else
        [ "$(systemd show "$unit" --property=ActiveState --value)" = active ] && pid=$(systemd show "$unit" --property=MainPID --value)
    fi
}

look() {
    find_manager
    echo iris:begin
    if [ -d "$home" ]; then
        if [ -f "$home/uid" ]; then echo "uid=$(cat "$home/uid")"; fi
        # The packages that the next start uses.
        for packages in runtime.new runtime; do
            if packages_work "$packages"; then
                echo "runtime=$(cat "$home/$packages/digest")"
                break
            fi
        done
        if [ -f "$home/config.yaml" ]; then echo "config=$(base64 < "$home/config.yaml" | tr -d '\n')"; fi
        echo "keys=$(keys_digest)"
        if [ -f "$home/manager" ]; then echo "manager=$manager"; fi
        if runs; then echo "pid=$pid"; fi
        if [ -f "$kept/message.key" ]; then echo "message_key=$(base64 < "$kept/message.key" | tr -d '\n')"; fi
        if [ -f "$kept/cluster.json" ]; then echo "record=$(base64 < "$kept/cluster.json" | tr -d '\n')"; fi
    fi
    echo iris:end
}

# Makes the directory of the cluster with the uid UID, unless there is one, and checks the machine as for an agent. PORT is the port
# of the Temporal service, KEYS has a line for each key with which the control plane logs in to hosts.
claim() {
    lock
    mkdir -p "$home" || fail "cannot create $home"
    [ -f "$home/uid" ] || echo "$UID_" > "$home/uid" || fail "cannot write $home/uid"
    [ "$(cat "$home/uid")" = "$UID_" ] || fail "another cluster $CLUSTER has its control plane there"
    echo "$KEYS" | while read -r key; do
        case $key in "~/"*) key=$HOME/${key#"~/"} ;; esac
        [ -z "$key" ] || [ -r "$key" ] || fail "the key $key is not there, with which the control plane logs in to the hosts;" \
            "create it there with ssh-keygen and add its public key to the hosts, or copy yours there (Iris copies no private key)"
    done || exit 1
    check_machine
    find_manager
    if ! runs; then
        "$python" -c 'import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))' "$PORT" 2> /dev/null || fail "port $PORT is in use there; set controller.manual.port"
    fi
    look
}

# Unpacks runtime.tgz beside the packages in use: DIGEST is that of the file. `launch` puts them in their place.
unpack() {
    lock
    unpack_runtime runtime.new
    look
}

configure() {
    { echo "$CONFIG" | base64 -d > "$home/config.new" && chmod 400 "$home/config.new" && mv -f "$home/config.new" "$home/config.yaml"; } ||
        fail "cannot write $home/config.yaml"
}

# Runs `iris controller manual` with these arguments and the packages of this directory.
manual() {
    packages=$1
    shift
    use_keys
    IRIS_STATE_DIR=$home/state "$packages/bin/python" -m iris.cli.main controller manual "$@" --config "$home/config.yaml" 9<&-
}

# Starts the control plane, unless it runs, with the packages, CONFIG, the configuration in base64, and PAYLOAD_KEYS as in
# `write_keys`. A host that cannot be used is reported; without any, nothing is started.
launch() {
    lock
    find_manager
    if runs; then
        look
        return
    fi
    configure
    write_keys
    if [ -f "$home/runtime.new/digest" ]; then
        rm -rf "$home/runtime" && mv -T "$home/runtime.new" "$home/runtime" || fail "cannot replace $home/runtime"
    fi
    reason=$(manual "$home/runtime" check 2>&1) || fail_with "$reason"
    warnings=$(echo "$reason" | base64 | tr -d '\n')
    : > "$home/supervisor.log" || fail "cannot write $home/supervisor.log"
    echo "$manager" > "$home/manager"
    if [ "$manager" = none ]; then
        cd "$home" || fail "cannot enter $home"
        own_locale
        use_keys
        IRIS_STATE_DIR=$home/state setsid nohup "$home/runtime/bin/python" -m iris.cli.main controller manual serve \
            --config "$home/config.yaml" >> "$home/supervisor.log" 2>&1 < /dev/null 9<&- &
        echo "$! $(born $!) $(boot_id)" > "$home/agent.pid" || fail "cannot write $home/agent.pid"
    else
        mkdir -p "$units" && write_unit > "$units/$unit" || fail "cannot write $units/$unit"
        reason=$(systemd daemon-reload 2>&1 && systemd enable --quiet "$unit" 2>&1 && systemd restart "$unit" 2>&1) ||
            fail "systemd does not start $unit: $reason"
    fi
    echo "warnings=$warnings" > "$home/.warnings"
    look | sed "/^iris:begin/r $home/.warnings"
    rm -f "$home/.warnings"
}

write_unit() {
    place=$(printf %s "$home" | sed 's/%/%%/g') keys=
    if [ -f "$home/payload.keys" ]; then keys=" \"IRIS_PAYLOAD_KEYS=$place/payload.keys\""; fi
    cat << UNIT
[Unit]
Description=Control plane of the Iris cluster $CLUSTER
Wants=network-online.target
After=network-online.target

[Service]
Environment="IRIS_STATE_DIR=$place/state" "HOME=$(printf %s "$HOME" | sed 's/%/%%/g')"$keys
WorkingDirectory=$place
ExecStart="$place/runtime/bin/python" -m iris.cli.main controller manual serve --config "$place/config.yaml"
StandardOutput=append:$place/supervisor.log
StandardError=append:$place/supervisor.log
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=90

[Install]
WantedBy=$target
UNIT
}

# Ends the control plane. What runs on hosts runs on.
halt() {
    lock
    find_manager
    if [ "$manager" != none ]; then
        systemd stop "$unit" 2> /dev/null
    elif runs; then
        kill -TERM "$pid"
        for _ in $(seq 600); do
            agent_runs || break
            sleep 0.1
        done
        if agent_runs; then kill -KILL "$pid"; fi
    fi
    look
}

# Applies CONFIG, the configuration in base64, to the running control plane and to its next start.
apply() {
    lock
    configure
    reason=$(manual "$home/runtime" reload 2>&1) || fail_with "$reason"
    look
}

# Gives back all hosts, ends the control plane and removes everything of it. If a host does not answer, the rest is ended and the
# directory stays, for the next try. GIVEN_UP has the addresses of hosts that will not come back.
remove() {
    lock
    find_manager
    reason=
    if [ -f "$kept/cluster.json" ] && [ -f "$home/runtime/digest" ] && ! packages_work runtime; then
        fail "the Python of the packages in $home/runtime was removed or replaced there, so the hosts cannot be given back;" \
            "install the packages again with: iris cluster restart $CLUSTER, and stop it then"
    fi
    # Without a record, the control plane was never started and has leased nothing.
    if [ -f "$kept/cluster.json" ] && [ -f "$home/runtime/digest" ]; then
        set --
        for address in $GIVEN_UP; do set -- "$@" --give-up "$address"; done
        reason=$(manual "$home/runtime" stop "$@" 2>&1)
        status=$?
    else
        status=0
    fi
    if [ "$manager" != none ]; then
        systemd disable --quiet --now "$unit" 2> /dev/null
        rm -f "$units/$unit"
        systemd daemon-reload
    elif runs; then
        kill -KILL "$pid"
    fi
    [ "$status" = 0 ] || fail_with "$reason"
    chmod -R u+w "$home" 2> /dev/null
    rm -rf "$home" || fail "cannot remove $home"
    rmdir "$base" 2> /dev/null # another cluster may have its control plane there
    look
}

# Replaces the key with which users' secrets are sealed, and reports what was done as JSON.
rotate() {
    lock
    find_manager
    runs || fail "the control plane of cluster $CLUSTER does not run there; start it with: iris cluster restart $CLUSTER"
    reason=$(manual "$home/runtime" rotate 2>&1) || fail_with "$reason"
    echo iris:begin
    echo "output=$(printf %s "$reason" | base64 | tr -d '\n')"
    echo iris:end
}

output() {
    echo iris:begin
    for log in "$home/supervisor.log" "$kept/logs/controller.log"; do
        if [ -s "$log" ]; then text="${text:-}$(tail -n "$LINES_" "$log")
"; fi
    done
    echo "output=$(printf %s "${text:-}" | tail -c 60000 | base64 | tr -d '\n')"
    echo iris:end
}
