"""A causal language model in two halves: a body that makes hidden states, a head that makes logits.

Models scale, soft-cap and bias their logits in their own forward method, so the head is that very
method, with the body's forward replaced by one that returns the hidden states at hand. The body is
what the model itself calls: found by watching one call, with the arguments it is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch

from yaie.models.hf.errors import UnfitError


class Split:
    """The halves of `model`, found by running it once.

    Args:
        model: a causal language model of transformers.
        arguments: keyword arguments of that run; `input_ids` [1, T] among them.

    Raises:
        UnfitError: the model has no such halves.

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
        """Run the body; its output's `last_hidden_state` is [1, T, hidden]. Arguments that the
        model did not hand on to its body are left out.
        """
        taken = {name: value for name, value in arguments.items() if name in self.takes}
        return self.body(**(self._kept | taken))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab], as the model's own forward method makes them."""
        ids = torch.zeros((1, len(hidden)), dtype=torch.int64, device=hidden.device)
        with self._given(hidden.unsqueeze(0)):
            logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits[0]

    @contextmanager
    def _given(self, hidden: torch.Tensor) -> Iterator[None]:
        """While open, the body returns `hidden` whatever it is called with."""
        output = self._output(last_hidden_state=hidden)
        self.body.forward = lambda *_args, **_kwargs: output
        try:
            yield
        finally:
            del self.body.forward  # the class's own method shows again


def _hidden(output: Any) -> Any:
    return getattr(output, "last_hidden_state", None)


def _by_name(body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of the body, all by name."""
    names = list(signature(type(body).forward).parameters)[1:]
    return dict(zip(names, args, strict=False)) | kwargs


def _kept(given: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What the body is always called with: all that the caller did not name. Tensors that the
    model computed for its body could not be repeated for other inputs.
    """
    kept = {name: value for name, value in given.items() if name not in arguments}
    computed = [name for name, value in kept.items() if isinstance(value, torch.Tensor)]
    if computed:
        raise UnfitError(f"it computes {computed[0]} for its body")
    return kept
