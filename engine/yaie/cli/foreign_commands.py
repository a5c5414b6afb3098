"""Commands of Ollama and vLLM that are none here, with what to write instead."""

from typing import Final

INSTEAD: Final = {
    "run": "serve the model with `yaie serve MODEL`, then talk to it with `yaie chat`",
    "pull": "`yaie serve hf://org/name` downloads what it needs",
    "push": "models are read from folders and from the hub; nothing is uploaded",
    "list": "`yaie ps` lists the models of `yaie up`",
    "ls": "`yaie ps` lists the models of `yaie up`",
    "show": "GET /v1/models of a server describes its models",
    "stop": "`yaie scale NAME --replicas 0` stops a model of `yaie up`; Ctrl-C stops a server",
    "rm": "`yaie delete NAME` removes a model of `yaie up`",
    "create": "there are no Modelfiles; `yaie apply -f model.yaml` creates a model of `yaie up`",
    "cp": "models have no copies; `--served-model-name` takes several names",
    "complete": "`yaie chat --prompt TEXT` prints one answer",
    "bench": "any OpenAI-compatible load generator measures a server, `vllm bench serve` too",
    "launch": "`yaie serve MODEL` starts a server",
}
