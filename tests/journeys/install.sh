#!/bin/sh
# Installs what the journeys need: Debian's chromium with its driver (needs root), and axe-core from
# npm, which checks the pages for what keeps people out. Does nothing when they are already there.
set -eu
cd "$(dirname "$0")/../.."

axe=axe-core-4.14.1
hash=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v chromedriver >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing chromium chromium-driver"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
    fi
fi

[ ! -f ".cache/$axe/axe.min.js" ] || exit 0
mkdir -p .cache
folder=$(mktemp -d .cache/XXXXXX)
trap 'rm -rf "$folder"' EXIT
if ! (cd "$folder" && npm pack --silent "axe-core@${axe#axe-core-}" >/dev/null); then
    echo "axe-core could not be fetched with npm: its checks will be skipped"
    exit 0
fi
tar -xzf "$folder/$axe.tgz" -C "$folder"
echo "$hash  $folder/package/axe.min.js" | sha256sum --check --quiet
mkdir -p ".cache/$axe"
mv "$folder/package/axe.min.js" ".cache/$axe/axe.min.js"
