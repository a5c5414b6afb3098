"""The suites: whose client, how it is run, and how its own report becomes checks.

A suite's `run` gets the server's URL and returns its checks. What a client cannot pass for a reason
that is not ours stands in `excused`, by the check's name.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import environments

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
LM_EVAL_TASKS = CLIENTS / "lm_eval_tasks"
TOKENIZER = HERE.parents[1] / "engine/yaie/checkpoint/builtin/yaie-demo"
EXAMPLES = HERE.parents[1] / "examples"
MODEL = "demo"
RUN_TIMEOUT_S = 2400
SHARED_LOOP = ("-o", "asyncio_default_test_loop_scope=session")
"""LangChain keeps one asynchronous HTTP client for all tests: they have to share its event loop."""
REQUESTS = 12
NEVER_ENDS = {
    "TestChatModel.test_unicode_tool_call_integration": "the built-in model (6 million parameters) "
    "copies the Chinese name, then writes about the company until its context is full"
}


@dataclass(frozen=True)
class Check:
    """One thing a client did. `outcome`: passed, failed or skipped (by the client itself)."""

    name: str
    outcome: str
    detail: str = ""


@dataclass(frozen=True)
class Suite:
    """`long_context`: whether its prompts need more positions than the demo model has."""

    name: str
    run: Callable[[str], list[Check]]
    targets: tuple[str, ...] = ("serve", "router")
    excused: Mapping[str, str] = field(default_factory=dict)
    long_context: bool = False


def _program(environment: str, program: str) -> Callable[[str], list[Check]]:
    """A program of ours on a Python client, reporting JSON lines."""
    return lambda url: _lines([environments.python(environment), CLIENTS / program], url)


def _javascript(program: str) -> Callable[[str], list[Check]]:
    return lambda url: _lines(["node", environments.node() / program], url)


def _codex(url: str) -> list[Check]:
    codex = environments.node() / "node_modules/.bin/codex"
    return _lines([sys.executable, CLIENTS / "codex_cli.py", codex], url)


def _lines(command: list[object], url: str) -> list[Check]:
    done = _execute(command, url)
    checks = []
    for line in done.stdout.splitlines():
        if line.startswith('{"check"'):
            entry = json.loads(line)
            checks.append(Check(entry["check"], entry["outcome"], entry["detail"]))
    return checks or [_broken(done)]


def _langchain(url: str) -> list[Check]:
    """LangChain's standard tests, read from pytest's XML report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = _execute(
            [
                environments.python("langchain"), "-m", "pytest", CLIENTS / "langchain_standard.py",
                "-q", "--asyncio-mode=auto", *SHARED_LOOP, "-p", "no:cacheprovider",
                f"--junitxml={report}",
                "-c", os.devnull, "--rootdir", folder, "--confcutdir", CLIENTS, "-W", "ignore",
            ],
            url,
        )  # fmt: skip
        if not report.exists():
            return [_broken(done)]
        return [_test_case(case) for case in ET.parse(report).getroot().iter("testcase")]


def _langchain_example(url: str) -> list[Check]:
    """The program that users copy, started as they start it."""
    program = EXAMPLES / "langchain_chat.py"
    done = _execute([environments.python("langchain"), program, "--endpoint", f"{url}/v1"], url)
    said = dict(line.partition(": ")[::2] for line in done.stdout.splitlines())
    good = done.returncode == 0 and said.get("whole") and said.get("streamed")
    return [Check("chain, whole and streamed", "passed" if good else "failed", _tail(done))]


def _test_case(case: ET.Element) -> Check:
    name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := case.find(kind)) is not None:
            detail = f"{found.get('message') or ''}\n{found.text or ''}"
            return Check(name, outcome, detail.strip()[:2000])
    return Check(name, "passed")


def _lm_eval(url: str) -> list[Check]:
    """Two tasks of ours through both model types: likelihoods of token ids, and generation."""
    plans = (
        ("local-completions", "completions", "yaie_choice,yaie_generate", ()),
        ("local-chat-completions", "chat/completions", "yaie_generate", ("--apply_chat_template",)),
    )
    return [_one_evaluation(url, *plan) for plan in plans]


def _one_evaluation(url: str, kind: str, path: str, tasks: str, more: tuple[str, ...]) -> Check:
    model = f"model={MODEL},base_url={url}/v1/{path},num_concurrent=4,max_retries=1"
    if kind == "local-completions":
        model += f",tokenizer={TOKENIZER},tokenizer_backend=huggingface"
    with tempfile.TemporaryDirectory() as folder:
        done = _execute(
            [
                environments.python("lm-eval"), "-m", "lm_eval", "--model", kind,
                "--model_args", model, "--tasks", tasks, "--include_path", LM_EVAL_TASKS,
                "--output_path", folder, *more,
            ],
            url,
            LM_EVAL_TASKS,
        )  # fmt: skip
        reports = list(Path(folder).rglob("results_*.json"))
        if done.returncode or not reports:
            return Check(kind, "failed", _tail(done))
        scores = json.loads(reports[0].read_text())["results"]
        complete = set(scores) == set(tasks.split(","))
        return Check(kind, "passed" if complete else "failed", json.dumps(scores))


def _guidellm(url: str) -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "benchmarks.json"
        done = _execute(
            [
                environments.python("guidellm").with_name("guidellm"), "run",
                "--backend", f"kind=openai_http,target={url},model={MODEL}",
                "--profile", "kind=concurrent,streams=4",
                "--constraint", f"kind=max_requests,count={REQUESTS}",
                "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
                "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
                "--output", f"kind=json,path={report}", "--disable-console",
            ],
            url,
        )  # fmt: skip
        if done.returncode or not report.exists():
            return [Check("concurrent profile", "failed", _tail(done))]
        totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    good = totals["successful"] == totals["total"] == REQUESTS
    return [Check("concurrent profile", "passed" if good else "failed", json.dumps(totals))]


def _aiperf(url: str) -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        done = _execute(
            [
                environments.python("aiperf").with_name("aiperf"), "profile", "--model", MODEL,
                "--url", url, "--endpoint-type", "chat", "--streaming",
                "--request-count", str(REQUESTS), "--concurrency", "4",
                "--synthetic-input-tokens-mean", "64", "--output-tokens-mean", "16",
                "--tokenizer", TOKENIZER, "--artifact-dir", folder, "--ui", "none",
            ],
            url,
        )  # fmt: skip
        reports = list(Path(folder).rglob("profile_export_aiperf.json"))
        if done.returncode or not reports:
            return [Check("streaming chat", "failed", _tail(done))]
        found = json.loads(reports[0].read_text())
    count = found["request_count"]["avg"]
    errors = found.get("error_summary") or []
    good = count == REQUESTS and not errors
    return [Check("streaming chat", "passed" if good else "failed", f"{count} requests {errors}")]


def _vllm_bench(url: str) -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        done = _execute(
            [
                environments.vllm(), CLIENTS / "vllm_bench.py",
                "--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions",
                "--model", MODEL, "--tokenizer", TOKENIZER, "--dataset-name", "random",
                "--random-input-len", "64", "--random-output-len", "16", "--ignore-eos",
                "--num-prompts", str(REQUESTS), "--save-result", "--result-dir", folder,
                "--result-filename", "result.json",
            ],
            url,
        )  # fmt: skip
        report = Path(folder) / "result.json"
        if done.returncode or not report.exists():
            return [Check("random dataset", "failed", _tail(done))]
        found = json.loads(report.read_text())
    good = found["completed"] == REQUESTS and found["total_output_tokens"] == 16 * REQUESTS
    shown = {key: found[key] for key in ("completed", "total_output_tokens", "mean_ttft_ms")}
    return [Check("random dataset", "passed" if good else "failed", json.dumps(shown))]


def _schemathesis(url: str) -> list[Check]:
    """Generated requests for every operation of our own document: no server error, no surprise.

    One worker: with two, reading its own strategies crashes CPython 3.11 (recursion depth of the
    parser is not kept for each thread).
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = _execute(
            [
                environments.python("schemathesis").with_name("schemathesis"), "run",
                f"{url}/openapi.json", "--checks", "not_a_server_error", "--max-examples", "200",
                "--phases", "examples,coverage,fuzzing", "--request-timeout", "120",
                "--suppress-health-check", "all", "--generation-database", "none",
                "--continue-on-failure", "--workers", "1", "--seed", "1",
                "--report", "junit", "--report-junit-path", report,
            ],
            url,
        )  # fmt: skip
        if not report.exists():
            return [_broken(done)]
        return [_test_case(case) for case in ET.parse(report).getroot().iter("testcase")]


SUITES = (
    Suite("openai-python 2.x", _program("openai-2", "openai_python.py")),
    Suite("openai-python 3.x", _program("openai-3", "openai_python.py")),
    Suite("openai-node", _javascript("openai_node.mjs")),
    Suite("Vercel AI SDK", _javascript("ai_sdk.mjs")),
    Suite("Anthropic Python", _program("anthropic", "anthropic_python.py")),
    Suite("Anthropic JavaScript", _javascript("anthropic_node.mjs")),
    Suite("pydantic-ai", _program("pydantic-ai", "pydantic_ai_client.py")),
    Suite("Codex CLI", _codex, long_context=True),
    Suite("LangChain standard tests", _langchain, excused=NEVER_ENDS),
    Suite("LangChain example", _langchain_example),
    Suite("LiteLLM", _program("litellm", "litellm_client.py")),
    Suite("lm-eval", _lm_eval),
    Suite("guidellm", _guidellm),
    Suite("aiperf", _aiperf),
    Suite("vllm bench serve", _vllm_bench),
    Suite("schemathesis", _schemathesis, targets=("serve",)),
)


def _execute(
    command: list[object], url: str, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a client against `url`; it may reach nothing but loopback by its own settings."""
    settings = {
        "YAIE_COMPAT_URL": url,
        "YAIE_COMPAT_MODEL": MODEL,
        "PYTHONPATH": str(HERE),
        "OPENAI_API_KEY": "none",
        "DO_NOT_TRACK": "1",
        "AI_SDK_LOG_WARNINGS": "false",
        "HF_DATASETS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "empty",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False,
        timeout=RUN_TIMEOUT_S, env=kept | settings, cwd=folder or tempfile.gettempdir(),
    )  # fmt: skip


def _broken(done: "subprocess.CompletedProcess[str]") -> Check:
    return Check("starts", "failed", _tail(done))


def _tail(done: "subprocess.CompletedProcess[str]") -> str:
    return (done.stdout[-1500:] + "\n" + done.stderr[-1500:]).strip()
