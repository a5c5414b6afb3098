"""Trains the built-in model on one GPU in a few minutes and writes it as safetensors (bfloat16).

    python tools/demo_model/train.py CORPUS OUT [--minutes 8]
    python tools/demo_model/train.py CORPUS OUT --start FOLDER --peak 4e-4 --minutes 60
        # goes on with weights; for two CPU cores: --length 512 --longest 512
        # --tokens-per-step 8192

CORPUS is what `corpus.py` made. The model is a small Llama; the code below is its plain definition
in torch, so that nothing but torch, numpy and safetensors is needed.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": [2, 0],
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}
HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 256, 4, 2, 64


class RMSNorm(nn.Module):
    """x / rms(x) * weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (HIDDEN,), self.weight.to(x.dtype), 1e-6)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate halves. x [B, H, T, D], cos and sin [T, D]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Layer(nn.Module):
    """One decoder layer; parameter names are the checkpoint's."""

    def __init__(self) -> None:
        super().__init__()
        kv, inner = KV_HEADS * HEAD_DIM, CONFIG["intermediate_size"]
        self.input_layernorm = RMSNorm()
        self.post_attention_layernorm = RMSNorm()
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False),
                "k_proj": nn.Linear(HIDDEN, kv, bias=False),
                "v_proj": nn.Linear(HIDDEN, kv, bias=False),
                "o_proj": nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(HIDDEN, inner, bias=False),
                "up_proj": nn.Linear(HIDDEN, inner, bias=False),
                "down_proj": nn.Linear(inner, HIDDEN, bias=False),
            }
        )

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        y, attn, mlp = self.input_layernorm(x), self.self_attn, self.mlp
        q, k, v = (
            attn[name](y).view(batch, length, -1, HEAD_DIM).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        out = F.scaled_dot_product_attention(
            rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + attn["o_proj"](out.transpose(1, 2).reshape(batch, length, -1))
        y = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Model(nn.Module):
    """Token ids [B, T] to logits [B, T, vocab]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = RMSNorm()
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                depth = 2 * CONFIG["num_hidden_layers"]
                scale = depth**-0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        half = torch.arange(0, HEAD_DIM, 2, device=ids.device).float() / HEAD_DIM
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device), 10000.0**-half)
        cos, sin = (f(angles).repeat(1, 2).to(torch.bfloat16) for f in (torch.cos, torch.sin))
        x = self.embed_tokens(ids).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight.to(x.dtype))


def loss_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Mean next-token cross entropy in nats. ids [B, T + 1]."""
    with torch.autocast(ids.device.type, torch.bfloat16):
        logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def sample(
    data: torch.Tensor, rows: int, length: int, starts: torch.Tensor | None = None
) -> torch.Tensor:
    """`rows` random windows of length + 1 tokens, from any place or from one of `starts` [S].

    A request is the first of its row: without `starts`, a model hardly ever sees one there, and
    answers as if another conversation, with its functions, stood before it. data [N] int64.
    """
    last = data.numel() - length - 1
    if starts is None:
        begin = torch.randint(0, last, (rows, 1), device=data.device)
    else:
        begin = starts[torch.randint(0, starts.numel(), (rows, 1), device=data.device)]
    return data[begin.clamp(max=last) + torch.arange(length + 1, device=data.device)]


@torch.no_grad()
def perplexity(model: nn.Module, data: torch.Tensor, length: int = 1024) -> float:
    """Exp of the mean loss over consecutive windows."""
    count = max(1, (data.numel() - 1) // length)
    windows = [data[i * length : (i + 1) * length + 1] for i in range(count)]
    windows = [window for window in windows if window.numel() == length + 1]
    losses = [loss_of(model, window[None]).item() for window in windows]
    return math.exp(sum(losses) / len(losses))


def schedule(progress: float, peak: float) -> float:
    """Learning rate: 2 % warm-up, then a straight line to zero at the end."""
    return peak * min(progress / 0.02, 1.0) * (1.0 - progress)


def train(
    model: Model, corpus: dict[str, torch.Tensor], plan: argparse.Namespace
) -> tuple[int, int]:
    """Train by the clock: prose share falls from 40 % to 10 %, the last rows are longer.

    A training that goes on with weights keeps the smallest share of prose.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    compiled = torch.compile(model)
    start, step, tokens, done = time.monotonic(), 0, 0, 0.0
    while done < 1.0:
        length = plan.length if done < 0.85 else plan.longest
        rows = plan.tokens_per_step // length
        prose_rows = round(rows * (0.1 if plan.start else 0.4 - 0.3 * done))
        ids = torch.cat(
            [sample(corpus["train"], prose_rows, length),
             sample(corpus["chat"], rows - prose_rows, length, corpus["chat_starts"])]
        )  # fmt: skip
        for group in optimizer.param_groups:
            group["lr"] = schedule(done, plan.peak)
        loss = loss_of(compiled, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + rows * length
        if step % 20 == 0:
            if ids.is_cuda:
                torch.cuda.synchronize()
            done = (time.monotonic() - start) / (plan.minutes * 60)
        if step % 500 == 0:
            prose = perplexity(model, corpus["heldout_prose"][:16385])
            chat = perplexity(model, corpus["heldout_chat"][:16385])
            print(
                f"step {step} {tokens / 1e6:.0f}M tokens {time.monotonic() - start:.0f} s "
                f"loss {loss.item():.3f} heldout prose {prose:.2f} chat {chat:.2f}",
                flush=True,
            )
    return step, tokens


def export(model: Model, out: Path, report: dict) -> None:
    """Write config.json, model.safetensors (bf16) and report.json below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        f"model.{name.replace('_orig_mod.', '')}": value.to(torch.bfloat16).contiguous().cpu()
        for name, value in model.state_dict().items()
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--tokens-per-step", type=int, default=131072)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--longest", type=int, default=4096, help="tokens of the last rows")
    parser.add_argument("--peak", type=float, default=4e-3, help="largest learning rate")
    parser.add_argument("--start", type=Path, help="folder of a model to go on with")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    corpus = {
        path.stem: torch.from_numpy(np.load(path).astype(np.int64)).to(device)
        for path in arguments.corpus.glob("*.npy")
    }
    model = Model()
    if arguments.start:
        weights = load_file(arguments.start / "model.safetensors")
        model.load_state_dict({name.removeprefix("model."): w for name, w in weights.items()})
    model = model.to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters", flush=True)
    started = time.monotonic()
    steps, tokens = train(model, corpus, arguments)
    report = {
        "parameters": parameters,
        "steps": steps,
        "tokens": tokens,
        "minutes": round((time.monotonic() - started) / 60, 2),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "perplexity": {
            name: round(perplexity(model, corpus[name]), 3)
            for name in ("heldout_prose", "heldout_chat")
        },
    }
    print(json.dumps(report))
    export(model, arguments.out, report)


if __name__ == "__main__":
    main()
