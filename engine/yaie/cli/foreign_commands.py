"""Commands of Ollama and vLLM that are none here, with what to write instead."""

from typing import Final

INSTEAD: Final = {
    "push": "models are read from folders and from the hub; nothing is uploaded",
    "list": "`yaie ls` lists the models on the disk, `yaie ps` those that run",
    "show": "GET /v1/models of a server describes its models",
    "stop": "`yaie scale NAME --replicas 0` stops a model of `yaie up`; Ctrl-C stops a server",
    "create": "there are no Modelfiles; `yaie apply -f model.yaml` creates a model of `yaie up`",
    "cp": "models have no copies; `--served-model-name` takes several names",
    "complete": "`yaie chat --prompt TEXT` prints one answer",
    "bench": "any OpenAI-compatible load generator measures a server, `vllm bench serve` too",
    "launch": "`yaie serve MODEL` starts a server",
}
