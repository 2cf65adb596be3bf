# The common start of both scripts. The caller first assigns IMAGE (of the container), CONFIG (the configuration in base64),
# PROFILE_OPTIONS and PROFILE_CREDENTIALS (pairs of keys in a profile of Temporal's: with texts, with references to secrets),
# PAYLOAD_KEYS (a reference to the file of payload keys; empty: there is none), and SECRET_KEYS (to that of keys for users' secrets).
#
# The script reports its progress on the serial console, in lines that begin with [iris-init]. They are the only information from
# a machine without login. The script runs at every boot, and may run at any other time.
set -euo pipefail

# The parent of all files that the script writes. It is not / in tests and chroots.
root=${IRIS_ROOT:-}
state=$root/var/lib/iris
config=$root/etc/iris/config.yaml
# The profile with the credentials of the Temporal service. The containers read it; no command line has its values.
profile=$root/etc/iris/temporal.toml
# The keys with which the cluster encrypts payloads, for the containers too.
payload_keys=$root/etc/iris/payload.keys
# The keys that open users' secrets. The processes in the containers read the file at each use.
secret_keys=$root/etc/iris/secret.keys
secret_manager=${IRIS_SECRET_MANAGER:-https://secretmanager.googleapis.com}
# The number of tries of a command that may fail temporarily, and the seconds between two tries.
tries=${IRIS_TRIES:-20}
pause=${IRIS_PAUSE:-15}
# The seconds between two checks of a started container.
check_interval=${IRIS_CHECK_INTERVAL:-3}
# The default is the home directory. A boot script has none, and on Container-Optimized OS it is read-only.
export DOCKER_CONFIG=$state/docker-login

say() { echo "[iris-init] $*"; }

fail() {
    say "FAILED: $*"
    exit 1
}

# retry WHAT COMMAND…: runs the command until it succeeds, at most $tries times. Returns 1 if it never did.
retry() {
    local what=$1 try
    shift
    for ((try = 1; try <= tries; try++)); do
        if "$@"; then
            return 0
        fi
        say "$what: try $try of $tries failed"
        sleep "$pause"
    done
    return 1
}

# metadata PATH: prints the value at the path of Google's metadata server. Returns 1 without an answer, 2 if there is no value.
metadata() {
    local answer url="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/$1"
    answer=$(curl -s --connect-timeout 2 --max-time 10 -H 'Metadata-Flavor: Google' -w '\n%{http_code}' "$url") || return 1
    case ${answer##*$'\n'} in
        200) printf '%s' "${answer%$'\n'*}" ;;
        404) return 2 ;;
        *) return 1 ;;
    esac
}

# attribute NAME [DEFAULT]: prints an attribute from the machine's metadata. Without a default it waits for the attribute.
attribute() {
    local value try status
    for ((try = 1; try <= tries; try++)); do
        status=0
        value=$(metadata "instance/attributes/$1") || status=$?
        if [ "$status" = 2 ] && [ $# = 2 ]; then
            value=$2 status=0
        fi
        if [ "$status" = 0 ]; then
            printf '%s' "$value"
            return 0
        fi
        say "metadata $1: try $try of $tries failed" >&2
        sleep "$pause"
    done
    return 1
}

install_docker() {
    apt-get update -qq || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=300 docker.io || return 1
    # Newer releases have the docker command in a separate package.
    command -v docker > /dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker-cli
}

docker_answers() { docker info > /dev/null 2>&1; }

ready_docker() {
    # On systems with snaps, the programs may not be installed yet at the first boot.
    if command -v snap > /dev/null; then
        timeout 300 snap wait system seed.loaded || say "snaps are not ready; continuing without them"
    fi
    if ! command -v docker > /dev/null; then
        say "installing docker"
        retry "installing docker" install_docker || fail "docker could not be installed"
    fi
    retry "waiting for docker" docker_answers || fail "docker does not answer"
    say "docker is running"
}

# Prints an access token of the machine's service account.
access_token() {
    metadata instance/service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'
}

# read_secret SOURCE: assigns the value of gcp:projects/P/secrets/S/versions/V or file:/PATH to $secret. Returns 1 without a value.
read_secret() {
    local token answer
    case $1 in
        file:*) secret=$(cat "$root${1#file:}") || return 1 ;;
        *)
            token=$(access_token) || return 1
            # curl gets the token on its standard input, because every program can read command lines.
            answer=$(curl -s --connect-timeout 5 --max-time 20 --config - "$secret_manager/v1/${1#gcp:}:access" \
                <<< "header = \"Authorization: Bearer $token\"") || return 1
            secret=$(sed -n 's/.*"data" *: *"\([^"]*\)".*/\1/p' <<< "$answer" | base64 -d) || return 1
            [ -n "$secret" ] || say "Secret Manager: $(sed -n 's/.*"message" *: *"\(.*\)".*/\1/p' <<< "$answer")"
            ;;
    esac
    [ -n "$secret" ]
}

# write_profile OWNER: looks up the credentials of the Temporal service, writes its profile, which only OWNER can read, and adds
# the path of the profile to the containers' environment.
write_profile() {
    local pair key source secret text="[profile.default]"
    if [ ${#PROFILE_OPTIONS[@]} = 0 ]; then
        rm -f "$profile"
        return
    fi
    for ((pair = 0; pair < ${#PROFILE_OPTIONS[@]}; pair += 2)); do
        text+=$'\n'"${PROFILE_OPTIONS[pair]} = '''${PROFILE_OPTIONS[pair + 1]}'''"
    done
    text+=$'\n'"tls.disabled = false"
    for ((pair = 0; pair < ${#PROFILE_CREDENTIALS[@]}; pair += 2)); do
        key=${PROFILE_CREDENTIALS[pair]} source=${PROFILE_CREDENTIALS[pair + 1]}
        if ! retry "reading $source" read_secret "$source"; then
            [ -f "$profile" ] || fail "could not read $source, the Temporal service's $key"
            say "could not read $source, the Temporal service's $key; using the credentials of the last boot"
            environment+=(-e "TEMPORAL_CONFIG_FILE=$profile")
            return
        fi
        case $secret in
            *"'''"*) fail "$source is not a valid $key" ;;
        esac
        text+=$'\n'"$key = '''$secret'''"
    done
    write_private "$profile" "$1" <<< "$text"
    environment+=(-e "TEMPORAL_CONFIG_FILE=$profile")
}

# write_keys OWNER: looks up the payload keys and those for users' secrets, writes their files, which only OWNER can read, and adds
# their paths to the containers' environment.
write_keys() {
    write_key_file "$1" "$PAYLOAD_KEYS" "$payload_keys" IRIS_PAYLOAD_KEYS "the payload keys"
    write_key_file "$1" "$SECRET_KEYS" "$secret_keys" IRIS_SECRET_KEYS "the keys for users' secrets"
}

# write_key_file OWNER SOURCE FILE VARIABLE WHAT: writes one file of keys, or removes it if SOURCE is empty.
write_key_file() {
    local secret
    if [ -z "$2" ]; then
        rm -f "$3"
        return
    fi
    if retry "reading $2" read_secret "$2"; then
        write_private "$3" "$1" <<< "$secret"
    else
        [ -f "$3" ] || fail "could not read $2, $5"
        say "could not read $2, $5; using those of the last boot"
    fi
    environment+=(-e "$4=$3")
}

# write_private FILE OWNER: writes the standard input to a file that only OWNER can read.
write_private() {
    (umask 077 && cat > "$1.new")
    if [ "$(id -u)" = 0 ]; then
        chown "$2" "$1.new"
    fi
    mv "$1.new" "$1"
    say "wrote $1"
}

# Logs in to Google's registries with a token of the machine's service account, which needs no further program.
log_in() {
    local token
    case $IMAGE in
        *-docker.pkg.dev/* | gcr.io/* | *.gcr.io/*) ;;
        *) return 0 ;;
    esac
    token=$(access_token) || return 1
    docker login -u oauth2accesstoken --password-stdin "https://${IMAGE%%/*}" <<< "$token" > /dev/null 2>&1
}

pull_image() {
    log_in || say "could not log in to ${IMAGE%%/*}; pulling without a login"
    docker pull "$IMAGE" > /dev/null
}

get_image() {
    say "pulling $IMAGE"
    if retry "pulling $IMAGE" pull_image; then
        say "pulled $IMAGE"
    elif docker image inspect "$IMAGE" > /dev/null 2>&1; then
        say "could not pull $IMAGE; using the image on this machine"
    else
        fail "could not pull $IMAGE"
    fi
}

write_config() {
    mkdir -p "$root/etc/iris"
    (umask 077 && mkdir -p "$state")
    (umask 077 && base64 -d <<< "$CONFIG" > "$config.new")
    mv "$config.new" "$config"
    say "wrote $config"
}

# start NAME OPTION… IMAGE COMMAND…: starts a container on the machine's network, which docker restarts whenever it ends. A
# container with the same arguments, configuration, credentials, keys and image is kept, and its programs continue.
start() {
    local name=$1 build there file
    shift
    build=$({
        printf '%s\0' "$@" "$CONFIG"
        docker image inspect --format='{{.Id}}' "$IMAGE" 2> /dev/null || true
        for file in "$profile" "$payload_keys"; do
            if [ -e "$file" ]; then cat "$file"; fi
        done
    } | sha256sum | cut -c1-16)
    there=$(docker inspect --type=container --format='{{index .Config.Labels "iris.build"}}' "$name" 2> /dev/null) || there=
    before=0
    if [ "$there" = "$build" ]; then
        docker start "$name" > /dev/null || fail "could not start $name"
        before=$(restarts_of "$name")
        say "$name is already running"
        return
    fi
    docker rm -f "$name" > /dev/null 2>&1 || true # usually there is none
    docker run -d --name "$name" --restart=unless-stopped --network=host --label="iris.build=$build" \
        --log-opt=max-size=50m --log-opt=max-file=3 "$@" > /dev/null || fail "could not start $name"
    say "started $name"
}

# restarts_of NAME: prints how often docker has restarted the container.
restarts_of() {
    local count
    count=$(docker inspect --type=container --format='{{.RestartCount}}' "$1" 2> /dev/null) || count=
    if [[ $count =~ ^[0-9]+$ ]]; then echo "$count"; else echo 0; fi
}

# watch NAME CHECKS MAX: waits until the container has stayed up for CHECKS checks in a row. Returns 1 if it is restarted MAX
# times before that. If it was restarted at all, prints its last log lines.
watch() {
    local name=$1 checks=$2 max=$3 restarts=0 stayed=0 now
    while [ "$stayed" -lt "$checks" ] && [ "$restarts" -lt "$max" ]; do
        sleep "$check_interval"
        now=$(($(restarts_of "$name") - before))
        if [ "$now" -gt "$restarts" ]; then stayed=0; else stayed=$((stayed + 1)); fi
        restarts=$now
    done
    if [ "$restarts" -le 0 ]; then
        say "$name is up"
        return
    fi
    say "$name exited and was restarted; its last output:"
    docker logs --tail=15 "$name" 2>&1 | sed 's/^/[iris-init] | /' || true
    [ "$restarts" -lt "$max" ]
}
