"""What `yaie plan` found out about one model, as lines and as JSON. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from yaie.cli.advice.planning.cards import Card
from yaie.cli.advice.planning.memory import (
    COLUMNS,
    Fit,
    Subject,
    about,
    arithmetic,
    gib,
    on_gpu,
    row,
    verdict,
)
from yaie.cli.advice.planning.nodes import Seat, rollout
from yaie.cli.advice.planning.room import Room
from yaie.cli.advice.planning.subject import Wish
from yaie.cli.commands.local.ps import table
from yaie_api.resource.capacity import DTYPE_BYTES

SEAT_COLUMNS: Final = ("NODE", "GPU", "FREE", "ROOM FOR", "WHY NOT")


@dataclass(frozen=True)
class Plan:
    """What was worked out for one model. `unseen`: why no place was looked at; "": one was."""

    wish: Wish
    subject: Subject
    fits: Sequence[Fit]
    room: Room | None = None
    unseen: str = ""

    @property
    def seats(self) -> Sequence[Seat]:
        """The nodes, without room where the model does not fit into their GPUs' memory."""
        return [] if self.room is None else [_with_memory(s, self.subject) for s in self.room.seats]

    @property
    def places(self) -> int:
        return sum(seat.places for seat in self.seats)

    @property
    def is_possible(self) -> bool:
        """Whether the model fits on a device, and has room in the place that was looked at."""
        has_room = not self.seats or self.places > 0 or self.is_running
        return any(fit.fits for fit in self.fits) and has_room

    @property
    def is_running(self) -> bool:
        return self.room is not None and bool(self.room.running)


def lines(plan: Plan) -> list[str]:
    """The whole plan, for people."""
    shown = next((fit for fit in plan.fits if fit.fits), plan.fits[-1])
    found = [*about(plan.subject), ""]
    if plan.subject.config.device != "cpu" or len(plan.fits) > 1:
        found += [table([COLUMNS, *map(row, plan.fits)]), "", verdict(plan.fits), ""]
    elif not shown.fits:
        found += [f"It does not fit: {shown.refusal}.", ""]
    found += arithmetic(shown, plan.subject)
    if plan.room is not None:
        return [*found, "", *_room(plan, plan.room)]
    return [*found, "", f"No cluster was looked at: {plan.unseen}"] if plan.unseen else found


def _room(plan: Plan, room: Room) -> list[str]:
    """Where engines would run, and how a rollout would go."""
    found = [f"On {room.where}:"]
    if plan.seats:
        found.append(table([SEAT_COLUMNS, *map(_seat_row, plan.seats)]))
    if room.unknown:
        found.append(f"  {room.unknown}")
    if not plan.seats:
        return found if room.unknown else [*found, "  it has no nodes"]
    wish, running = plan.wish, room.running or 0
    known = "" if room.running is None else f", {running} running"
    limit = " at most (spec.autoscaling.max)" if wish.by_load else ""
    found.append(f"  {wish.name}: {wish.replicas} wanted{limit}{known}")
    told = rollout(
        plan.places,
        wanted=wish.replicas,
        running=running,
        strategy=wish.strategy,
        max_surge=wish.max_surge,
    )
    return [*found, f"  {told}"]


def _seat_row(seat: Seat) -> tuple[str, ...]:
    memory = f" {gib(seat.gpu_memory_bytes)}" if seat.gpu_memory_bytes else ""
    free = "?" if seat.free_gpus is None else str(seat.free_gpus)
    return (
        seat.node,
        (seat.product or "?") + memory if seat.gpus else "-",
        f"{free} of {seat.gpus}" if seat.gpus else "-",
        "any number" if seat.places >= 1000 else str(seat.places),
        seat.why or "-",
    )


def _with_memory(seat: Seat, subject: Subject) -> Seat:
    """A node's seat, without room if one of its GPUs is too small for the model."""
    if seat.gpu_memory_bytes is None or subject.config.device == "cpu" or not seat.matches:
        return seat
    fit = on_gpu(subject, Card(seat.product, seat.gpu_memory_bytes))
    if fit.fits:
        return seat
    return replace(seat, places=0, why=f"its GPU is too small: {fit.refusal}")


def as_json(plan: Plan) -> dict[str, Any]:
    """The whole plan, for programs. Sizes are in bytes, lengths in tokens."""
    subject = plan.subject
    found = subject.footprint
    dtype = subject.dtype_on("cpu" if subject.config.device == "cpu" else "cuda")
    return {
        "model": subject.source,
        "architecture": subject.architecture,
        "native": subject.shape is not None,
        "parameters": found.parameters,
        "weight_bytes": {name: found.weight_bytes(size) for name, size in DTYPE_BYTES.items()},
        "dtype": dtype,
        "kv_bytes_per_token": found.kv_bytes_per_token(DTYPE_BYTES[dtype]) or None,
        "max_model_len": subject.longest,
        "devices": [asdict(fit) | {"fits": fit.fits} for fit in plan.fits],
        "cluster": None if plan.room is None else _room_json(plan, plan.room),
        "possible": plan.is_possible,
    }


def _room_json(plan: Plan, room: Room) -> dict[str, Any]:
    return {
        "where": room.where,
        "nodes": [asdict(seat) for seat in plan.seats],
        "places": plan.places,
        "wanted": plan.wish.replicas,
        "running": room.running,
        "unknown": room.unknown or None,
    }
