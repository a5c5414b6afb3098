#!/bin/sh
# Builds the project's images with docker or buildah, from the repository's root.
#
#   images/build.sh [control-plane] [engine]         default: both
#
# YAIE_BUILDER      docker or buildah; default: the first that is installed
# YAIE_BASE         base image; default: the Dockerfile's own (debian:12-slim)
# YAIE_BUILD_FLAGS  further flags for the builder, split at spaces
# YAIE_IMAGE_PREFIX what stands before /NAME:VERSION; default: yaie
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
    -h | --help)
        sed -n '/^set -eu/q; 2,$s/^# \{0,1\}//p' images/build.sh
        exit
        ;;
esac

builder=${YAIE_BUILDER:-}
if [ -z "$builder" ]; then
    for builder in docker buildah ""; do
        [ -n "$builder" ] || { echo "neither docker nor buildah is installed" >&2; exit 1; }
        ! command -v "$builder" >/dev/null || break
    done
fi

version=$(sed -n 's/^__version__.*"\(.*\)".*/\1/p' api/yaie_api/__init__.py)
[ -n "$version" ] || { echo "no version in api/yaie_api/__init__.py" >&2; exit 1; }

[ $# -gt 0 ] || set -- control-plane engine
for name in "$@"; do
    dockerfile=images/$name/Dockerfile
    [ -f "$dockerfile" ] || { echo "no such image: $name (see --help)" >&2; exit 2; }
    tag=${YAIE_IMAGE_PREFIX:-yaie}/$name:$version
    flags="--file $dockerfile --tag $tag --build-arg VERSION=$version ${YAIE_BUILD_FLAGS:-}"
    [ -z "${YAIE_BASE:-}" ] || flags="$flags --build-arg BASE=$YAIE_BASE"
    [ "$builder" = docker ] || flags="--layers --ignorefile $dockerfile.dockerignore $flags"
    echo "building $tag with $builder"
    # shellcheck disable=SC2086 # lists of words
    "$builder" build $flags .
done
