#!/bin/sh
# Installs the Debian packages that the test node and the image builds need. Needs root.
# Does nothing when they are already there.
set -eu

packages="buildah busybox-static conntrack containerd containernetworking-plugins debootstrap
ethtool iproute2 iptables openssl runc socat util-linux"

missing=""
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# The test node runs a containerd of its own: the packaged service need not start.
# shellcheck disable=SC2086 # a list of words
RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing
