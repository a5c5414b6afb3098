#!/bin/sh
# Runs a command in network, process and mount namespaces of its own, for the test node.
# What the node does to interfaces, routes, iptables, mounts and /run stays inside, and when the
# command ends, the kernel ends every process that it left. Needs root.
#
#   tests/cluster/sandbox.sh COMMAND [ARGUMENT …]
set -eu

# The kubelet sets these for the whole machine; they get their values back.
sysctls="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
kernel/keys/root_maxkeys kernel/keys/root_maxbytes"

saved=""
for name in $sysctls; do
    saved="$saved $name=$(cat "/proc/sys/$name")"
done

cgroup=/yaie-test-$$
folder=$(mktemp -d /var/tmp/yaie-sandbox.XXXXXX) # containerd's images take 10 GB

clean_up() {
    for pair in $saved; do
        name=${pair%%=*} value=${pair#*=}
        [ "$(cat "/proc/sys/$name")" = "$value" ] || echo "$value" >"/proc/sys/$name"
    done
    for group in /sys/fs/cgroup"$cgroup" /sys/fs/cgroup/*"$cgroup"; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \;
    done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p /var/lib/cni /var/lib/kubelet
export YAIE_SANDBOX_CGROUP="$cgroup" YAIE_SANDBOX_FOLDER="$folder"
unshare --net --pid --mount --fork --kill-child --mount-proc \
    sh -euc '
        ip link set lo up
        for folder in /run /var/lib/cni /var/lib/kubelet /var/log; do
            mount -t tmpfs -o mode=755 tmpfs "$folder"
        done
        "$@"
    ' sandbox "$@"
