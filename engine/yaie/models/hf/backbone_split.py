"""Divides a causal language model into a body (hidden states) and a head (logits).

Models scale, soft-cap and bias their logits in their own forward method. So the head is that
method, with the body's forward replaced by a function that returns given hidden states. The body is
the module that the model itself calls; it is found, with its arguments, by observing one call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch

from yaie.models.hf.errors import UnfitError


class Split:
    """Body and head of `model`, found by running it once.

    Args:
        model: a causal language model of transformers.
        arguments: keyword arguments of that run, including `input_ids` [1, T].

    Raises:
        UnfitError: the model cannot be divided into body and head.

    """

    def __init__(self, model: Any, **arguments: Any) -> None:
        self.model = model
        seen: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

        def watch(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if module is not model and isinstance(_hidden(output), torch.Tensor):
                seen.append((module, args, kwargs, output))

        hooks = [
            module.register_forward_hook(watch, with_kwargs=True) for module in model.modules()
        ]
        try:
            logits = model(**arguments).logits
        finally:
            for hook in hooks:
                hook.remove()
        if not seen:
            raise UnfitError("its hidden states cannot be told from its logits")
        self.body, args, kwargs, output = seen[-1]  # the outermost call ends last
        given = _by_name(self.body, args, kwargs)
        self.takes = given.keys() & arguments.keys()
        self.hidden_size = int(output.last_hidden_state.shape[-1])
        self.vocab_size = int(logits.shape[-1])
        self._kept = _kept(given, arguments)
        self._output = type(output)

    def hidden(self, **arguments: Any) -> Any:
        """Run the body; its output's `last_hidden_state` is [1, T, hidden].

        Arguments that the model did not pass to its body are omitted.
        """
        taken = {name: value for name, value in arguments.items() if name in self.takes}
        return self.body(**(self._kept | taken))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> logits [N, vocab], computed by the model's own forward method."""
        ids = torch.zeros((1, len(hidden)), dtype=torch.int64, device=hidden.device)
        with self._given(hidden.unsqueeze(0)):
            logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits[0]

    @contextmanager
    def _given(self, hidden: torch.Tensor) -> Iterator[None]:
        """Context manager in which the body returns `hidden` for any arguments."""
        output = self._output(last_hidden_state=hidden)
        self.body.forward = lambda *_args, **_kwargs: output
        try:
            yield
        finally:
            del self.body.forward  # restores the class's method


def _hidden(output: Any) -> Any:
    return getattr(output, "last_hidden_state", None)


def _by_name(body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call of the body, by name."""
    names = list(signature(type(body).forward).parameters)[1:]
    return dict(zip(names, args, strict=False)) | kwargs


def _kept(given: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the model adds when it calls its body, for every later call.

    Raises UnfitError if one is a tensor: the model computed it from this run's input.
    """
    kept = {name: value for name, value in given.items() if name not in arguments}
    computed = [name for name, value in kept.items() if isinstance(value, torch.Tensor)]
    if computed:
        raise UnfitError(f"it computes {computed[0]} for its body")
    return kept
