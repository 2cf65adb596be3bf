# A machine of a slice becomes a host. Beside those of shared.sh there are before it: CLUSTER, SLICE, TOKEN, HOST_IDS (by worker id),
# ADDRESS (of Temporal, for machines that are not told otherwise), CACHE, DEVICE (tpu, gpu or nothing) and CHIPS (how many of it),
# OPTIONS (of the agent) and NAMESPACE.

say "a machine of slice $SLICE of cluster $CLUSTER boots"
worker=0
if [ ${#HOST_IDS[@]} -gt 1 ]; then
    worker=$(attribute agent-worker-number) || fail "the metadata does not say which host of the slice this is"
fi
if ! [[ $worker =~ ^[0-9]+$ ]] || [ -z "${HOST_IDS[$worker]:-}" ]; then
    fail "the metadata says that this is host '$worker' of a slice of ${#HOST_IDS[@]}"
fi
host=${HOST_IDS[$worker]}
address=$(attribute iris-address "$ADDRESS") || fail "the metadata server does not answer"
say "it is $host, and its cluster at $address"

write_config
ready_docker
get_image

# The device files of the machine's TPU chips, one for each: newer kinds are numbers below vfio, older ones are accel*.
chips=()
find_chips() {
    local path
    chips=()
    for path in "$root"/dev/vfio/[0-9]* "$root"/dev/accel[0-9]*; do
        if [ -e "$path" ]; then
            chips+=("$path")
        fi
    done
    [ ${#chips[@]} -ge "$CHIPS" ]
}

gpus_answer() { nvidia-smi > /dev/null 2>&1; }

devices=()
case $DEVICE in
    tpu)
        # They come with the driver, which may be later than this script; a container has those that were there when it was made.
        if ! patiently "waiting for $CHIPS TPU chips" find_chips; then
            [ ${#chips[@]} -gt 0 ] || fail "there are no TPU chips: neither /dev/vfio/[0-9]* nor /dev/accel[0-9]*"
            say "there are no more than ${#chips[@]} TPU chips; going on with these"
        fi
        if [ -e "$root/dev/vfio/vfio" ]; then
            chips+=("$root/dev/vfio/vfio")
        fi
        for path in "${chips[@]}"; do
            devices+=("--device=$path:${path#"$root"}")
        done
        say "TPU devices: ${chips[*]}"
        # libtpu pins memory: 64 GiB at most.
        devices+=(--cap-add=SYS_RESOURCE --ulimit=memlock=68719476736:68719476736)
        ;;
    gpu)
        # Where the image brings a driver, it is installed when the machine boots for the first time: many minutes.
        tries=$((3 * tries)) patiently "waiting for the GPU driver" gpus_answer || fail "there is no GPU driver: nvidia-smi fails"
        devices+=(--gpus=all)
        ;;
esac

# Containers of tasks are the agent's neighbours, not its children: what it says of files must hold for the machine, and so its
# directories have the same paths in its container. It sees the machine's processes, to find what an earlier agent has left; has the
# machine's control groups, to hold tasks to their memory; and SYS_PTRACE, to profile them. The engine's own /dev/shm of 64 MiB is
# too small for data loaders and libtpu.
directory=$state/host
cache=$root$CACHE
mkdir -p "$directory" "$cache"
environment=(-e "TEMPORAL_NAMESPACE=$NAMESPACE")
if [ -n "${GCE_METADATA_HOST:-}" ]; then
    environment+=(-e "GCE_METADATA_HOST=$GCE_METADATA_HOST")
fi
start iris-agent --pid=host --cgroupns=host --cap-add=SYS_PTRACE --ulimit=core=0:0 --shm-size=100g "${devices[@]}" \
    -v /var/run/docker.sock:/var/run/docker.sock -v /sys/fs/cgroup:/sys/fs/cgroup \
    -v "$root/etc/iris:$root/etc/iris:ro" -v "$directory:$directory" -v "$cache:$cache" "${environment[@]}" \
    "$IMAGE" iris --cluster "$address/$CLUSTER" agent --slice "$SLICE" --token "$TOKEN" --host-id "$host" \
    --config "$config" --dir "$directory" --cache "$cache" "${OPTIONS[@]}"
# One that does not stay is no reason to give up: its cluster may be away, and come back.
watch iris-agent 5 1 || true
say "done"
