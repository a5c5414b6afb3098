"""Examples at the end of `yaie COMMAND --help`: commands to copy, one per line."""

from collections.abc import Sequence
from typing import Final

FIRST: Final = (
    "yaie run builtin://yaie-demo   # chat at once with the model that comes along",
    "yaie run Qwen/Qwen3-0.6B       # or with one of the hub",
    "yaie up Qwen/Qwen3-0.6B        # API and page on http://127.0.0.1:8000 until Ctrl-C",
    "yaie ps                        # in another terminal: what runs",
)
"""At the end of `yaie --help`."""
EXAMPLES: Final = {
    "run": (
        "yaie run builtin://yaie-demo",
        'yaie run Qwen/Qwen3-0.6B --prompt "What is Kubernetes?"',
        "cat question.txt | yaie run ./my-model --temperature 0",
    ),
    "serve": (
        "yaie serve builtin://yaie-demo",
        "yaie serve hf://Qwen/Qwen3-0.6B --max-model-len 8192",
        "yaie serve ./my-model --host 0.0.0.0 --port 9000 --api-key-file keys.txt",
        "yaie serve hf://Qwen/Qwen3-8B --tool-call-parser hermes --reasoning-parser qwen3",
        "yaie serve ./my-model --admin-port 9001   # POST /reset_prefix_cache there",
    ),
    "fake-engine": (
        "yaie fake-engine",
        "yaie fake-engine --ttft 0.2 --itl 0.01 --port 9000 --served-model-name demo",
        "yaie fake-engine --fail 5xx:0.01 reset:0.005 --seed 1",
        "yaie fake-engine --fail heartbeats:0.1 --sse-keep-alive-interval 1",
        "yaie fake-engine Qwen/Qwen3-0.6B --output-tokens 512   # that model's tokenizer",
    ),
    "warmup": (
        "yaie warmup hf://Qwen/Qwen3-0.6B",
        "yaie warmup ./my-model --max-num-seqs 512   # with TRITON_CACHE_DIR on a volume",
    ),
    "run-batch": (
        "yaie run-batch -i requests.jsonl -o answers.jsonl --model builtin://yaie-demo",
        "yaie run-batch -i in.jsonl -o out.jsonl --model hf://Qwen/Qwen3-0.6B --max-num-seqs 512",
    ),
    "chat": (
        "yaie chat --endpoint http://127.0.0.1:8000",
        'yaie chat --prompt "What is Kubernetes?" --temperature 0',
        'echo "What is a pod?" | yaie chat --model demo',
    ),
    "up": (
        "yaie up Qwen/Qwen3-0.6B",
        "yaie up -f manifests/samples/demo.yaml",
        "yaie up -f chat.yaml -f code.yaml --port 9000",
        "yaie up -f model.yaml --port 0 -- yaie chat",
        "yaie up                             # what the state folder holds; waits if it is empty",
    ),
    "plan": (
        "yaie plan Qwen/Qwen3-8B",
        "yaie plan ./my-model --gpu h100 --max-model-len 32768",
        "yaie plan -f model.yaml             # the nodes of the cluster, too",
        "yaie plan -f model.yaml --gpu-memory 48GiB -o json",
    ),
    "explain": (
        "yaie explain demo",
        "yaie explain demo -n chat --context staging",
        "yaie explain demo -o json",
    ),
    "doctor": (
        "yaie doctor",
        "yaie doctor --no-cluster",
        "yaie doctor --no-machine --context staging -n chat",
    ),
    "pull": ("yaie pull Qwen/Qwen3-0.6B", "yaie pull Qwen/Qwen3-0.6B@main"),
    "ls": ("yaie ls", "yaie ls -o json"),
    "rm": ("yaie rm Qwen/Qwen3-0.6B",),
    "completion": (
        "yaie completion bash   # in ~/.bashrc: source <(yaie completion bash)",
        "yaie completion zsh    # in ~/.zshrc: source <(yaie completion zsh)",
    ),
    "apply": ("yaie apply -f model.yaml", "cat model.yaml | yaie apply -f -"),
    "delete": ("yaie delete demo", "yaie delete -f model.yaml --ignore-not-found"),
    "scale": ("yaie scale demo --replicas 2", "yaie scale demo --replicas 0"),
    "ps": ("yaie ps", "yaie ps -o wide", "yaie ps demo --watch"),
    "logs": ("yaie logs demo -f", "yaie logs demo --tail 20", "yaie logs --router"),
}


def epilog(command: str) -> str:
    """The examples of a command as text; empty if there are none."""
    return as_text(EXAMPLES.get(command, ()))


def as_text(lines: Sequence[str]) -> str:
    return "\n".join(("examples:", *(f"  {line}" for line in lines))) if lines else ""
