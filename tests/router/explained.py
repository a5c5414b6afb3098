"""A choice, made again from what `x-yaie-route` tells of it."""

from collections.abc import Mapping, Sequence

from yaie_router.prefixes.policy import Option, place


def chosen_again(told: Mapping[str, str], names: Sequence[str]) -> str:
    """The engine's name. `names`: of the model's engines, in their order."""
    states = zip(names, told["options"].split(","), strict=True)
    options = [_option(name, *state.split(":")) for name, state in states if state != "-"]
    return place(options, key=int(told["key"], 16), is_free=told["free"] == "1").option.name


def _option(name: str, missing: str, queued: str, in_flight: str, recent: str) -> Option:
    return Option(name, int(missing), int(queued), int(in_flight), float(recent))
