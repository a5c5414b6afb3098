#!/bin/sh
# Installs Debian's prometheus, which has promtool, where it is missing (needs root). The service that
# comes with it is not wanted here.
set -eu
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "prometheus and promtool are missing: apt-get install prometheus" >&2
    exit 1
fi
echo "installing prometheus"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null
if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then
    systemctl disable --now prometheus prometheus-node-exporter 2>/dev/null || true
fi
