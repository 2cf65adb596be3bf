# Makes a machine of a slice a host. The caller assigns these variables before this script, besides those of shared.sh: CLUSTER,
# SLICE, HOST_IDS (by worker id), ADDRESS (of Temporal; used if the metadata has none), CACHE, DEVICE (tpu, gpu or empty),
# CHIPS (the number of devices), OPTIONS (of the agent) and NAMESPACE.

say "booting a host of slice $SLICE of cluster $CLUSTER"
worker=0
if [ ${#HOST_IDS[@]} -gt 1 ]; then
    worker=$(attribute agent-worker-number) || fail "the metadata has no agent-worker-number, which selects the host of the slice"
fi
if ! [[ $worker =~ ^[0-9]+$ ]] || [ -z "${HOST_IDS[$worker]:-}" ]; then
    fail "agent-worker-number is '$worker', but the slice has ${#HOST_IDS[@]} host(s)"
fi
host=${HOST_IDS[$worker]}
address=$(attribute iris-address "$ADDRESS") || fail "the metadata server does not answer"
say "this is host $host; its cluster is at $address"

write_config
environment=(-e "TEMPORAL_NAMESPACE=$NAMESPACE")
write_profile 0:0
write_keys 0:0
# The slice's private key, with which the agent proves that this machine was created for the slice. It is in no command line.
key=$root/etc/iris/slice.key
(umask 077 && attribute iris-private-key > "$key.new") || fail "the metadata has no iris-private-key"
mv "$key.new" "$key"
ready_docker
get_image

# Finds the device files of the TPU chips, one per chip: /dev/vfio/<number> for newer kinds, /dev/accel<number> for older ones.
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
        # The driver creates the files, maybe after this script starts. A container gets only files that exist at its creation.
        if ! retry "waiting for $CHIPS TPU chips" find_chips; then
            [ ${#chips[@]} -gt 0 ] || fail "there are no TPU chips: neither /dev/vfio/[0-9]* nor /dev/accel[0-9]*"
            say "found only ${#chips[@]} of $CHIPS TPU chips; continuing with these"
        fi
        if [ -e "$root/dev/vfio/vfio" ]; then
            chips+=("$root/dev/vfio/vfio")
        fi
        for path in "${chips[@]}"; do
            devices+=("--device=$path:${path#"$root"}")
        done
        chmod a+rw "${chips[@]}" # for tasks that run as processes, which are not root
        say "TPU devices: ${chips[*]}"
        # libtpu pins memory, at most 64 GiB.
        devices+=(--cap-add=SYS_RESOURCE --ulimit=memlock=68719476736:68719476736)
        ;;
    gpu)
        # If the image contains a driver, the first boot installs it, which takes many minutes.
        tries=$((3 * tries)) retry "waiting for the GPU driver" gpus_answer || fail "there is no GPU driver: nvidia-smi fails"
        devices+=(--gpus=all)
        ;;
esac

# The agent starts the containers of tasks beside its own, so the paths that it passes to Docker must be valid on the machine. Its
# directories therefore have the same paths inside its container. The options give the agent:
# - the machine's processes, to find the orphans of an earlier agent;
# - the machine's control groups, to limit the memory of tasks;
# - SYS_PTRACE, to profile tasks;
# - a larger /dev/shm, because Docker's default of 64 MiB is too small for data loaders and libtpu.
directory=$state/host
cache=$root$CACHE
jobs=$root/var/lib/iris-jobs
mkdir -p "$directory" "$cache" "$jobs"
if [ -n "${GCE_METADATA_HOST:-}" ]; then
    environment+=(-e "GCE_METADATA_HOST=$GCE_METADATA_HOST")
fi
start iris-agent --pid=host --cgroupns=host --cap-add=SYS_PTRACE --ulimit=core=0:0 --shm-size=100g "${devices[@]}" \
    -v /var/run/docker.sock:/var/run/docker.sock -v /sys/fs/cgroup:/sys/fs/cgroup \
    -v "$root/etc/iris:$root/etc/iris:ro" -v "$directory:$directory" -v "$cache:$cache" -v "$jobs:$jobs" "${environment[@]}" \
    "$IMAGE" iris --cluster "$address/$CLUSTER" agent --slice "$SLICE" --key-file "$key" --host-id "$host" \
    --config "$config" --dir "$directory" --cache "$cache" --jobs-dir "$jobs" "${OPTIONS[@]}"
# An agent that ends is not a failure of the machine: the cluster may be unreachable and return later.
watch iris-agent 5 1 || true
say "done"
