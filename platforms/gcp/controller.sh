# Sets up the control plane's machine. The caller assigns the variables of shared.sh and PORT before this script.

say "booting the control plane's machine"
write_config
# 10001 is the container's user, which does not exist on the machine.
if [ "$(id -u)" = 0 ]; then
    chown 10001:10001 "$state" "$config"
fi
environment=()
write_profile 10001:10001
write_keys 10001:10001
ready_docker
get_image
if [ -n "${GCE_METADATA_HOST:-}" ]; then
    environment+=(-e "GCE_METADATA_HOST=$GCE_METADATA_HOST")
fi
start iris-controller --ulimit=core=0:0 -v "$root/etc/iris:$root/etc/iris:ro" -v "$state:$state" "${environment[@]}" \
    "$IMAGE" iris controller run --config "$config" --state-dir "$state" --port "$PORT"
# Fail if the container does not stay up: a person waits for it and can fix the configuration or the image.
watch iris-controller 20 3 || fail "iris-controller does not stay up; see its output above"
say "done"
