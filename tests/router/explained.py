"""A choice, made again from what `x-yaie-route` tells of it."""

from collections.abc import Mapping, Sequence

from yaie_router.prefixes.policy import Option, place


def chosen_again(told: Mapping[str, str], names: Sequence[str]) -> str:
    """The engine's name. `names`: of the engines that the choice was between, in their order."""
    states = (part.split(":") for part in told["options"].split(","))
    options = [
        Option(name, int(missing), int(queued), int(in_flight), float(recent))
        for name, (missing, queued, in_flight, recent) in zip(names, states, strict=True)
    ]
    return place(options, key=int(told["key"], 16), is_free=told["free"] == "1").option.name
