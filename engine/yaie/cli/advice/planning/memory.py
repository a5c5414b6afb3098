"""How a model fits into the memory of a GPU or a machine, with the arithmetic in lines. Pure.

The figures of weights and cache are exact (`runtime.startup.footprint`). On a GPU activations are
an estimate, rather too high: the engine measures them when it starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from yaie.cli.advice.planning.cards import Card
from yaie.model_config.decoder_config import ModelConfig
from yaie.runtime.startup import footprint
from yaie.runtime.startup.footprint import STEP_TOKENS, Footprint
from yaie_api.engine_config import EngineConfig
from yaie_api.resource import capacity
from yaie_api.resource.capacity import DTYPE_BYTES

GIB: Final = 2**30
CONTEXT_BYTES: Final = 3 * 2**29
"""What the driver and a CUDA context keep of the memory that nvidia-smi shows, about: with it, the
planned cache is within 0.2 % of what two models got on an H200."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to plan for.

    Attributes:
        source: where it comes from.
        config: the engine's configuration.
        shape: of a native model; None: transformers runs it.
        footprint: what it takes; of a model that is not native without its cache.
        dtype: of the checkpoint; None: its config does not say it.

    """

    source: str
    config: EngineConfig
    shape: ModelConfig | None
    footprint: Footprint
    architecture: str
    dtype: str | None

    @property
    def longest(self) -> int | None:
        """The longest sequence in tokens; None: it is not known."""
        if self.config.max_model_len is not None or self.shape is None:
            return self.config.max_model_len
        return self.shape.max_positions

    def dtype_on(self, device: str) -> str:
        """The dtype that the engine computes in on a device."""
        if self.config.dtype != "auto":
            return self.config.dtype
        return (self.dtype or "bfloat16") if device == "cuda" else "float32"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory: what it is for, in bytes."""

    what: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model fits on one device.

    Attributes:
        name: of the device.
        memory_bytes: its memory.
        parts: what is taken away from it before the cache, in order.
        cache_bytes: what the KV cache gets; below 0: so much is missing.
        kv_tokens: tokens that the cache holds; None: it is not known.
        kv_pages: pages of the cache, as the engine reports them, the scratch page included.
        longest: the longest sequence that can be served, in tokens.
        concurrency: how many sequences of that length the cache holds.
        max_num_seqs: how many sequences may run at once.
        refusal: why the engine would not start; "": it would.
        gpus: GPUs of this kind whose memory would be enough. The engine uses one.

    """

    name: str
    memory_bytes: int
    dtype: str
    parts: tuple[Part, ...]
    cache_bytes: int
    kv_tokens: int | None
    kv_pages: int | None
    longest: int | None
    concurrency: float | None
    max_num_seqs: int
    refusal: str
    gpus: int = 1

    @property
    def fits(self) -> bool:
        return not self.refusal

    @property
    def at_once(self) -> float | None:
        """How many sequences of full length run at once."""
        return None if self.concurrency is None else min(self.concurrency, self.max_num_seqs)


def on_gpu(subject: Subject, card: Card) -> Fit:
    """How a model fits on one GPU of which nobody else uses anything."""
    config, dtype = subject.config, subject.dtype_on("cuda")
    item = DTYPE_BYTES[dtype]
    rows = config.max_num_seqs or capacity.default_max_num_seqs(card.memory_bytes)
    tokens = config.max_num_batched_tokens or STEP_TOKENS["cuda"]
    utilization = config.gpu_memory_utilization
    free = card.memory_bytes - CONTEXT_BYTES
    budget = capacity.gpu_budget_bytes(free, card.memory_bytes, utilization)
    weights = subject.footprint.weight_bytes(item)
    activations = tables = 0
    if (shape := subject.shape) is not None:
        n_logits = min(rows, tokens)
        activations = footprint.activation_bytes(shape, item, tokens=tokens, rows=n_logits)
        tables = capacity.table_bytes(rows, shape.vocab_size)
    parts = (
        Part("driver and CUDA context, about", CONTEXT_BYTES),
        Part(f"left alone: 1 - gpu_memory_utilization {utilization:g}", free - budget),
        Part(f"weights: {subject.footprint.parameters:,} in {dtype}", weights),
        Part(f"activations of a step of {tokens:,} tokens, estimated", activations),
        Part(f"tables for {rows:,} sequences' penalties and masks", tables),
        Part("captured graphs", int(capacity.GRAPH_SHARE * card.memory_bytes)),
    )
    cache = capacity.gpu_cache_bytes(
        budget - weights, card.memory_bytes, activations=activations, tables=tables
    )
    page = subject.footprint.kv_bytes_per_token(item) * config.page_size
    pages = max(0, cache) // page if page else None
    fit = _fit(
        subject,
        name=card.name,
        memory_bytes=card.memory_bytes,
        dtype=dtype,
        parts=parts,
        cache_bytes=cache,
        pages=pages,
        rows=rows,
    )
    fixed = CONTEXT_BYTES + (free - budget) + activations + tables + parts[-1].n_bytes
    return _with_gpus(fit, subject, item, per_gpu=card.memory_bytes - fixed)


def on_cpu(subject: Subject, *, free_bytes: int, memory_bytes: int, where: str) -> Fit:
    """How a model fits into memory of which `free_bytes` of `memory_bytes` are free."""
    config, dtype = subject.config, subject.dtype_on("cpu")
    item = DTYPE_BYTES[dtype]
    weights = subject.footprint.weight_bytes(item)
    parts = (Part(f"weights: {subject.footprint.parameters:,} in {dtype}", weights),)
    page = subject.footprint.kv_bytes_per_token(item) * config.page_size
    pages, rows = None, config.max_num_seqs or capacity.MAX_NUM_SEQS
    if page and (longest := subject.longest):
        pages = capacity.cpu_cache_pages(
            memory_bytes,
            page,
            per_sequence=-(-longest // config.page_size),
            max_num_seqs=rows,
            at_least=-(-(config.max_model_len or 0) // config.page_size),
        )
    return _fit(
        subject,
        name=where,
        memory_bytes=free_bytes,
        dtype=dtype,
        parts=parts,
        cache_bytes=free_bytes - weights,
        pages=pages,
        rows=rows,
    )


def _fit(
    subject: Subject,
    *,
    name: str,
    memory_bytes: int,
    dtype: str,
    parts: tuple[Part, ...],
    cache_bytes: int,
    pages: int | None,
    rows: int,
) -> Fit:
    """A fit, with what follows from the pages that its cache has room for."""
    config = subject.config
    if config.kv_cache_tokens is not None and pages is not None:
        pages = -(-config.kv_cache_tokens // config.page_size)
    page = subject.footprint.kv_bytes_per_token(DTYPE_BYTES[dtype]) * config.page_size
    tokens = None if pages is None else pages * config.page_size
    longest = subject.longest
    if tokens is not None and longest is not None:
        longest = min(longest, tokens)
    refusal = _refusal(config, cache_bytes, page, tokens)
    return Fit(
        name=name,
        memory_bytes=memory_bytes,
        dtype=dtype,
        parts=parts,
        cache_bytes=cache_bytes,
        kv_tokens=tokens,
        kv_pages=None if pages is None else pages + 1,
        longest=longest,
        concurrency=capacity.max_concurrency(tokens, longest) if tokens and longest else None,
        max_num_seqs=rows,
        refusal=refusal,
    )


def _refusal(config: EngineConfig, cache_bytes: int, page: int, tokens: int | None) -> str:
    """Why the engine would not start; "": it would."""
    if cache_bytes < 0:
        return f"{gib(-cache_bytes)} are missing for the weights"
    if tokens is None:
        return ""
    if tokens == 0 or cache_bytes < page:
        return "nothing is left for the KV cache"
    asked = config.max_model_len or 0
    if asked > tokens:
        return f"the KV cache holds {tokens:,} tokens, and max_model_len asks for {asked:,}"
    needed = tokens // config.page_size * page
    if needed > cache_bytes:
        return f"{gib(needed - cache_bytes)} are missing for a KV cache of {tokens:,} tokens"
    return ""


def _with_gpus(fit: Fit, subject: Subject, item: int, *, per_gpu: int) -> Fit:
    """The number of GPUs whose memory holds the weights and one sequence of the wanted length."""
    per_token = subject.footprint.kv_bytes_per_token(item)
    wanted = subject.config.max_model_len or subject.config.page_size
    needed = subject.footprint.weight_bytes(item) + per_token * wanted
    if fit.fits or per_gpu <= 0:
        return fit
    return replace(fit, gpus=max(2, -(-needed // per_gpu)))


def about(subject: Subject) -> list[str]:
    """What is the same on every device: weights, cache per token, length."""
    found, shape = subject.footprint, subject.shape
    sizes = " · ".join(
        f"{dtype} {gib(found.weight_bytes(n))}"
        for dtype, n in DTYPE_BYTES.items()
        if dtype != "float16"  # as large as bfloat16
    )
    stored = f" (the checkpoint's: {subject.dtype})" if subject.dtype else ""
    lines = [
        f"{subject.source}: {subject.architecture}, "
        + ("native" if shape is not None else "run by transformers"),
        f"  parameters   {found.parameters:,}",
        f"  weights      {sizes}{stored}",
    ]
    if shape is None:
        return [*lines, "  KV cache     not known: this architecture has no native model"]
    dtype = subject.dtype_on("cpu" if subject.config.device == "cpu" else "cuda")
    per_token = found.kv_bytes_per_token(DTYPE_BYTES[dtype])
    lines.append(f"  KV cache     {_per_token(shape)} = {kib(per_token)} per token in {dtype}")
    longest = subject.longest or 0
    whose = "as asked for" if subject.config.max_model_len else "the model's own"
    lines.append(
        f"  length       {longest:,} tokens ({whose}): {gib(longest * per_token)} of KV cache each"
    )
    return lines


def _per_token(shape: ModelConfig) -> str:
    per_layer = footprint.kv_elements(shape)
    if shape.mla is None:
        what = f"2 x {shape.num_kv_heads} heads x {shape.head_dim}"
    elif shape.mla.form == "naive":
        sizes = f"({shape.mla.qk_head_dim} + {shape.mla.v_head_dim})"
        what = f"{shape.num_heads} heads x {sizes}"
    else:
        what = f"a latent of {per_layer}"
    return f"{shape.num_layers} layers x {what}"


def arithmetic(fit: Fit, subject: Subject) -> list[str]:
    """How the tokens of one device come about, line by line."""
    lines = [f"  {gib(fit.memory_bytes):>10}  {fit.name}"]
    lines += [f"- {gib(part.n_bytes):>10}  {part.what}" for part in fit.parts if part.n_bytes]
    if fit.cache_bytes < 0:
        return [*lines, f"= {'-' + gib(-fit.cache_bytes):>10}  is missing"]
    lines.append(f"= {gib(fit.cache_bytes):>10}  is left for the KV cache")
    if fit.kv_tokens is None:
        return lines
    per_token = subject.footprint.kv_bytes_per_token(DTYPE_BYTES[fit.dtype])
    held = f"{fit.kv_tokens:,} tokens of {kib(per_token)}, in pages of {subject.config.page_size}"
    lines.append(f"  {'':>10}  {held}")
    if fit.concurrency is not None and fit.longest:
        most = f", of which {fit.max_num_seqs:,} may run at once (max_num_seqs)"
        told = f"{fit.concurrency:,.1f} sequences of {fit.longest:,} tokens"
        is_capped = fit.concurrency > fit.max_num_seqs
        lines.append(f"  {'':>10}  = {told}{most if is_capped else ''}")
    return lines


COLUMNS: Final = ("GPU", "MEMORY", "KV TOKENS", "LONGEST", "AT ONCE", "FITS")


def row(fit: Fit) -> tuple[str, ...]:
    """The cells of a device in the table."""
    if not fit.fits:
        return fit.name, gib(fit.memory_bytes), "-", "-", "-", f"no: {fit.refusal}"
    return (
        fit.name,
        gib(fit.memory_bytes),
        _number(fit.kv_tokens),
        _number(fit.longest),
        "?" if fit.at_once is None else f"{fit.at_once:,.1f}".removesuffix(".0"),
        "yes",
    )


def verdict(fits: Sequence[Fit]) -> str:
    """The number of GPUs that the model needs, in a sentence; `fits` go from small to large."""
    if enough := next((fit for fit in fits if fit.fits), None):
        return f"One GPU is enough: {enough.name} ({gib(enough.memory_bytes)})."
    last = fits[-1]
    return (
        f"One {last.name} is not enough: {last.refusal}. Weights and one sequence would need the "
        f"memory of {last.gpus}, and yaie runs a model on one GPU: tensor parallelism is not "
        "supported. Use a larger GPU, a smaller model, or a shorter --max-model-len."
    )


def gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB / 10 else f"{n_bytes / 2**20:.1f} MiB"


def kib(n_bytes: int) -> str:
    return f"{n_bytes / 1024:g} KiB"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
