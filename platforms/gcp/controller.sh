# A machine becomes the control plane's. Beside those of shared.sh there is before it: PORT.

say "the machine of the control plane boots"
write_config
# The container's user is nobody on the machine.
if [ "$(id -u)" = 0 ]; then
    chown 10001:10001 "$state" "$config"
fi
ready_docker
get_image
environment=()
if [ -n "${GCE_METADATA_HOST:-}" ]; then
    environment+=(-e "GCE_METADATA_HOST=$GCE_METADATA_HOST")
fi
start iris-controller --ulimit=core=0:0 -v "$root/etc/iris:$root/etc/iris:ro" -v "$state:$state" "${environment[@]}" \
    "$IMAGE" iris controller run --config "$config" --state-dir "$state" --port "$PORT"
# Somebody waits for it, who can mend the configuration or the image.
watch iris-controller 20 3 || fail "iris-controller does not stay up; its last words stand above"
say "done"
