"""Qwen3 (dense): Llama's decoder with an RMSNorm on every query and key head (`config.qk_norm`)."""

from yaie.models.llama import Llama


class Qwen3(Llama):
    """Head norms come from the config; checkpoint names are Llama's plus q_norm and k_norm."""
