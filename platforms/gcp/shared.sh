# What both scripts begin with. Before it stand IMAGE (of the container) and CONFIG (the configuration in base64).
#
# What a machine does is told on its serial console, in lines that begin with [iris-init]: nothing else can be seen of a machine
# that cannot be logged in to. The script runs at every boot, and may run at any time.
set -euo pipefail

# Everything that is written is below it: another one than / is for tests, and for chroots.
root=${IRIS_ROOT:-}
state=$root/var/lib/iris
config=$root/etc/iris/config.yaml
# How often is tried what may fail for a while, and how many seconds are between.
tries=${IRIS_TRIES:-20}
pause=${IRIS_PAUSE:-15}
# Between looks at a container that has been started, in seconds.
look=${IRIS_LOOK:-3}
# Else in the home directory, which a script at boot does not have, and Container-Optimized OS not to write to.
export DOCKER_CONFIG=$state/docker-login

say() { echo "[iris-init] $*"; }

fail() {
    say "FAILED: $*"
    exit 1
}

# patiently WHAT COMMAND…: until it succeeds.
patiently() {
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

# metadata PATH: what Google's metadata server has there. 1: nobody answers; 2: it has nothing there.
metadata() {
    local answer url="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/$1"
    answer=$(curl -s --connect-timeout 2 --max-time 10 -H 'Metadata-Flavor: Google' -w '\n%{http_code}' "$url") || return 1
    case ${answer##*$'\n'} in
        200) printf '%s' "${answer%$'\n'*}" ;;
        404) return 2 ;;
        *) return 1 ;;
    esac
}

# attribute NAME [DEFAULT]: what was said of the machine when it was made. Without a default it is waited for.
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
    # Newer releases have the command in a package of its own.
    command -v docker > /dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker-cli
}

docker_answers() { docker info > /dev/null 2>&1; }

ready_docker() {
    # Where programs come as snaps, they are not there yet when a machine boots for the first time.
    if command -v snap > /dev/null; then
        timeout 300 snap wait system seed.loaded || say "the snaps are not ready; going on without"
    fi
    if ! command -v docker > /dev/null; then
        say "installing docker"
        patiently "installing docker" install_docker || fail "docker could not be installed"
    fi
    patiently "waiting for docker" docker_answers || fail "docker does not answer"
    say "docker is there"
}

# The registries of Google know the machine by its service account: no other program is needed to log in.
log_in() {
    local token
    case $IMAGE in
        *-docker.pkg.dev/* | gcr.io/* | *.gcr.io/*) ;;
        *) return 0 ;;
    esac
    token=$(metadata instance/service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p') || return 1
    docker login -u oauth2accesstoken --password-stdin "https://${IMAGE%%/*}" <<< "$token" > /dev/null 2>&1
}

pull_image() {
    log_in || say "could not log in to ${IMAGE%%/*}; trying without"
    docker pull "$IMAGE" > /dev/null
}

get_image() {
    say "pulling $IMAGE"
    if patiently "pulling $IMAGE" pull_image; then
        say "the image is there"
    elif docker image inspect "$IMAGE" > /dev/null 2>&1; then
        say "could not pull $IMAGE; going on with the one that is here"
    else
        fail "could not pull $IMAGE"
    fi
}

write_config() {
    mkdir -p "$root/etc/iris" "$state"
    (umask 077 && base64 -d <<< "$CONFIG" > "$config.new")
    mv "$config.new" "$config"
    say "wrote $config"
}

# start NAME OPTION… IMAGE COMMAND…: a container on the machine's own network, which docker starts again whenever it ends. One that
# was made of the very same is left alone: what runs in it goes on.
start() {
    local name=$1 build there
    shift
    build=$({
        printf '%s\0' "$@" "$CONFIG"
        docker image inspect --format='{{.Id}}' "$IMAGE" 2> /dev/null || true
    } | sha256sum | cut -c1-16)
    there=$(docker inspect --format='{{index .Config.Labels "iris.build"}}' "$name" 2> /dev/null) || there=
    before=0
    if [ "$there" = "$build" ]; then
        docker start "$name" > /dev/null || fail "could not start $name"
        before=$(restarts_of "$name")
        say "$name was there already"
        return
    fi
    docker rm -f "$name" > /dev/null 2>&1 || true # mostly there is none
    docker run -d --name "$name" --restart=unless-stopped --network=host --label="iris.build=$build" \
        --log-opt=max-size=50m --log-opt=max-file=3 "$@" > /dev/null || fail "could not start $name"
    say "started $name"
}

# restarts_of NAME: how often docker has started it again.
restarts_of() {
    local count
    count=$(docker inspect --format='{{.RestartCount}}' "$1" 2> /dev/null) || count=
    if [[ $count =~ ^[0-9]+$ ]]; then echo "$count"; else echo 0; fi
}

# watch NAME LOOKS MANY: until it has stayed for so many looks, or was started again MANY times, which is 1; what it says if it was
# started again at all.
watch() {
    local name=$1 looks=$2 many=$3 restarts=0 stayed=0 now
    while [ "$stayed" -lt "$looks" ] && [ "$restarts" -lt "$many" ]; do
        sleep "$look"
        now=$(($(restarts_of "$name") - before))
        if [ "$now" -gt "$restarts" ]; then stayed=0; else stayed=$((stayed + 1)); fi
        restarts=$now
    done
    if [ "$restarts" -le 0 ]; then
        say "$name is up"
        return
    fi
    say "$name ends and is started again; its last words:"
    docker logs --tail=15 "$name" 2>&1 | sed 's/^/[iris-init] | /' || true
    [ "$restarts" -lt "$many" ]
}
