#!/bin/sh
# Runs the end-to-end tests on a real Kubernetes node of this machine: installs what is missing,
# builds the cluster and the images (cached), and runs pytest in a sandbox of its own.
# Arguments go to pytest. Needs root, Go and a few Debian packages.
#
# With YAIE_TEST_KUBECONFIG set, that cluster is used; it has to have the images already, and
# YAIE_TEST_SETTINGS may say where: '{"images.registry": "registry.example.com"}'.
set -eu
cd "$(dirname "$0")/../.."

python=${PYTHON:-.venv/bin/python}
export PYTHONPATH=tests
sandbox=
if [ -z "${YAIE_TEST_KUBECONFIG:-}" ] && [ "$(id -u)" = 0 ] && command -v go >/dev/null; then
    if command -v apt-get >/dev/null; then
        tests/cluster/install_node.sh
    fi
    "$python" -m cluster.binaries >/dev/null
    "$python" -m cluster.images
    sandbox=tests/cluster/sandbox.sh
fi

# Without these, pytest reports what is missing: as a skip, or as a failure in CI.
run() {
    $sandbox "$python" -m pytest tests/e2e -m e2e -o cache_dir=.cache/pytest-e2e --timeout=900 "$@"
}

# A machine that others share is late here and there: what fails runs once more, on a new node.
run "$@" || run --last-failed --last-failed-no-failures none "$@"
