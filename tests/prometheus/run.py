"""`make prometheus`: every expression of dashboards and rules, asked of a real Prometheus.

    PYTHONPATH=tests python tests/prometheus/run.py [--output bench/results/DATE-prometheus.md]

Starts `yaie up` with the built-in model, the operator's metrics port, traffic, and Prometheus on
loopback, which scrapes them with the labels that the chart's PodMonitors set. Passes when every
target answers, promtool finds nothing in the metrics, the rules and their tests, every rule can be
evaluated, each expression of a panel or a recording rule returns data, and no alert fires. (That
each alert can fire is what `tests/charts/rules_test.yaml` shows.)
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from charts import promql
from ports import free_port
from yaie.cli.local.client import LocalClient
from yaie_api import __version__, names, vllm_metrics

ROOT = Path(__file__).parents[2]
NAMESPACE = "default"
TRAFFIC_S = 30.0
DATA_WITHIN_S = 30.0
LIMIT_S = 280
SCRAPE_S = 1
VALUES = {"$__rate_interval": "30s", "$namespace": ".*", "$model": ".*", "$pod": ".*"}
TESTS = ROOT / "tests" / "charts" / "rules_test.yaml"


@dataclass(frozen=True)
class Target:
    """A process that Prometheus scrapes, under the labels that it would have on a cluster."""

    job: str
    address: str
    labels: dict[str, str]

    def config(self) -> dict[str, Any]:
        static = {"targets": [self.address], "labels": self.labels}
        honor = self.job == "yaie-operator"
        return {"job_name": self.job, "honor_labels": honor, "static_configs": [static]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the result there, too")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        return measure(args.inside, args.output)
    with tempfile.TemporaryDirectory(prefix="yaie-prometheus-") as folder:
        output = ["--output", str(args.output)] if args.output else []
        again = [sys.executable, __file__, *output, "--inside", folder]
        up = [sys.executable, "-m", "yaie", "up", "--state-dir", folder, "--port", "0"]
        files = ["-f", str(Path(__file__).with_name("model.yaml")), "--timeout", "120"]
        return _ended([*up, *files, "--", *again])


def _ended(command: list[str]) -> int:
    """Run a command to its end, or end it when its time is over."""
    running = subprocess.Popen(command)
    try:
        return running.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"not done after {LIMIT_S} s", file=sys.stderr)
        running.terminate()
        running.wait(30)
        return 1


def measure(state: Path, output: Path | None) -> int:
    """What `yaie up` runs when the model is ready."""
    endpoint = os.environ["YAIE_ENDPOINT"]
    with contextlib.ExitStack() as stack:
        targets = [*_pods(state), stack.enter_context(operator())]
        prometheus = stack.enter_context(running_prometheus(state, targets))
        stack.enter_context(traffic(endpoint))
        time.sleep(TRAFFIC_S)
        problems = [*_promtool(targets), *_state(prometheus)]
        rows = list(_asked(prometheus))
        problems += [f"no data: {place}: {expr}" for place, expr, found in rows if not found]
    report = _report(rows, problems, targets)
    print(report)
    if output is not None:
        output.write_text(report)
    return 1 if problems else 0


def _pods(state: Path) -> Iterator[Target]:
    """The engine and the router, where `yaie up` runs them."""
    client = LocalClient(state / "api.sock")
    for component, job, port in (
        ("engine", "yaie-engines", names.HTTP_PORT),
        ("router", "yaie-routers", names.ROUTER_METRICS_PORT),
    ):
        for pod in client.pods(NAMESPACE, f"{names.LABEL_COMPONENT}={component}"):
            metadata = pod["metadata"]
            labels = {"namespace": NAMESPACE, "pod": metadata["name"]}
            if component == "engine":
                labels["model"] = metadata["labels"][names.LABEL_MODEL]
            yield Target(job, f"{pod['status']['podIP']}:{port}", labels)


@contextlib.contextmanager
def operator() -> Iterator[Target]:
    """The operator's metrics."""
    command = [sys.executable, str(Path(__file__).with_name("operator_metrics.py"))]
    with _process(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        labels = {"namespace": "yaie-system", "pod": "yaie-operator-0"}
        yield Target("yaie-operator", f"127.0.0.1:{port}", labels)


@contextlib.contextmanager
def running_prometheus(state: Path, targets: list[Target]) -> Iterator[str]:
    """Prometheus on a loopback port; yields its address."""
    program = shutil.which("prometheus")
    if program is None:
        sys.exit("prometheus is not installed: tests/prometheus/install.sh")
    rules = promql.RULES.read_text().replace("interval: 30s", f"interval: {SCRAPE_S}s")
    (state / "rules.yaml").write_text(rules)
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            "scrape_timeout": f"{SCRAPE_S}s",
            "evaluation_interval": f"{SCRAPE_S}s",
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": [target.config() for target in targets],
    }
    (state / "prometheus.yaml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={state / 'prometheus.yaml'}",
        f"--storage.tsdb.path={state / 'tsdb'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with _process(command):
        yield f"http://{address}"


@contextlib.contextmanager
def _process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def traffic(endpoint: str) -> Iterator[None]:
    """Chats and completions, streamed and whole, and a request that is refused."""
    done = threading.Event()
    system = "You are a helpful assistant who knows Kubernetes well. " * 4

    def send() -> None:
        number = 0
        while not done.is_set():
            number += 1
            question = {"role": "user", "content": f"Question {number}: what is a pod?"}
            messages = [{"role": "system", "content": system}, question]
            body = {"model": "demo", "messages": messages, "max_tokens": 24}
            _post(f"{endpoint}/v1/chat/completions", {**body, "stream": number % 2 == 0})
            text = {"model": "demo", "prompt": f"{number} pods", "max_tokens": 8, "n": 2}
            _post(f"{endpoint}/v1/completions", text)
            _post(f"{endpoint}/v1/chat/completions", {**body, "max_tokens": -1})
            done.wait(0.1)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(30)


def _post(url: str, body: dict[str, Any]) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.read()


def _promtool(targets: list[Target]) -> Iterator[str]:
    """What promtool finds in the rules, in their tests, and in the metrics of each process."""
    checks = [("check", "rules", str(promql.RULES)), ("test", "rules", str(TESTS))]
    for check in checks:
        yield from _complaints(check, b"")
    for target in targets:
        with urllib.request.urlopen(f"http://{target.address}/metrics", timeout=10) as response:
            # vLLM's names break the rules that promtool checks.
            lines = response.read().splitlines(keepends=True)
        ours = b"".join(line for line in lines if b"vllm:" not in line)
        yield from _complaints(("check", "metrics"), ours)


def _complaints(check: tuple[str, ...], text: bytes) -> Iterator[str]:
    done = subprocess.run(
        ["promtool", *check], input=text, capture_output=True, check=False, timeout=60
    )
    if done.returncode:
        yield f"promtool {' '.join(check[:2])}: {(done.stdout + done.stderr).decode().strip()}"


def _state(prometheus: str) -> Iterator[str]:
    """Targets that do not answer, rules that cannot be evaluated, alerts that fire."""
    for target in _get(prometheus, "targets", state="active")["activeTargets"]:
        if target["health"] != "up":
            yield f"{target['labels']['job']} is {target['health']}: {target['lastError']}"
    for group in _get(prometheus, "rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"rule {rule['name']} is {rule['health']}: {rule.get('lastError', '')}"
            if rule.get("state") == "firing":
                yield f"alert {rule['name']} fires"


def _asked(prometheus: str) -> Iterator[tuple[str, str, int]]:
    """Each expression of a panel and each recorded series, with the number of series found."""
    expressions = [*promql.of_dashboards()]
    expressions += [promql.Expression(name, name) for name in sorted(promql.recorded())]
    for name, ours in vllm_metrics.SHOWN.items():
        series = f"{name}_count" if ours.kind == "histogram" else name
        expressions.append(promql.Expression(name, series))
    for place, expr in expressions:
        query = expr
        for name, value in VALUES.items():
            query = query.replace(name, value)
        yield place, expr, _series(prometheus, query)


def _series(prometheus: str, query: str) -> int:
    """The number of series that have a value: a quantile of nothing is no number."""
    deadline = time.monotonic() + DATA_WITHIN_S
    while True:
        series = _get(prometheus, "query", query=query)["result"]
        found = sum(one["value"][1] != "NaN" for one in series)
        if found or time.monotonic() > deadline:
            return found
        time.sleep(1)


def _get(prometheus: str, path: str, **query: str) -> Any:
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.loads(response.read())["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{query}: {error.read().decode()}")


def _report(rows: list[tuple[str, str, int]], problems: list[str], targets: list[Target]) -> str:
    said = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    version = (said.stdout or said.stderr).split(" (")[0].replace(", version", "")
    alerts = list(promql.alerts())
    lines = [
        "# Dashboards and rules against a real Prometheus",
        "",
        (
            f"{datetime.now(UTC):%Y-%m-%d}, yaie {__version__}, {version}, Python "
            f"{platform.python_version()}, {os.cpu_count()} CPU cores, `builtin://yaie-demo` under "
            f"`yaie up`,"
        ),
        (
            "the operator over a cluster in memory; "
            f"{', '.join(one.job for one in targets)} scraped every {SCRAPE_S} s. "
            "`make prometheus` runs this again."
        ),
        "",
        "| of | expressions | with data |",
        "|---|---|---|",
    ]
    for part in sorted({_part(place) for place, _, _ in rows}):
        found = [found > 0 for place, _, found in rows if _part(place) == part]
        lines.append(f"| {part} | {len(found)} | {sum(found)} |")
    lines += ["", f"{len(alerts)} alerts are evaluated without an error and silent here. Each"]
    lines += ["fires in `tests/charts/rules_test.yaml`, which promtool runs.", ""]
    lines += [f"Problems: {len(problems) or 'none'}.", *(f"- {problem}" for problem in problems)]
    return "\n".join(lines) + "\n"


def _part(place: str) -> str:
    dashboard, _, panel = place.partition(": ")
    if panel:
        return f"dashboard {dashboard}"
    return "vLLM's names" if place.startswith("vllm:") else "recording rules"


if __name__ == "__main__":
    sys.exit(main())
