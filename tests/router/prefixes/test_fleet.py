"""Placing requests of a model: what is shared, what is in the key, and that routers agree."""

import pytest

from router.explained import chosen_again
from yaie_api.prefix import Load, PrefixUpdate
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.prefixes.fleet import Fleet
from yaie_router.prefixes.placer import Placer, Ticket

NAMES = ("a", "b", "c", "d")
MODEL = Model("demo", "demo", endpoints=tuple(Endpoint(n, "127.0.0.1", 80) for n in NAMES))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def placer() -> Placer:
    return fresh()


def fresh() -> Placer:
    made = Placer(b"secret", Clock())
    for name in NAMES:
        made.take("demo", name, PrefixUpdate(1, 0, parts=1))
    return made


def chat(*turns: str, system: str = "") -> dict[str, object]:
    first = [{"role": "system", "content": system}] if system else []
    roles = ("user", "assistant")
    spoken = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"model": "demo", "messages": first + spoken}


def send(placer: Placer, body: dict[str, object], tenant: str = "") -> Ticket:
    ticket = placer.place(MODEL, placer.keys(body, MODEL, tenant), ())
    assert ticket is not None
    return ticket


def test_conversations_with_one_system_prompt_go_to_all_engines_though_nobody_waits(
    placer: Placer,
) -> None:
    system = "You are helpful. " * 200
    taken = [send(placer, chat(f"question {i}", system=system)) for i in range(60)]
    for ticket in taken:
        ticket.__exit__(None, None, None)
    counts = [sum(one.endpoint.name == name for one in taken) for name in NAMES]
    assert max(counts) <= 1.25 * 60 / 4 + 5
    assert min(counts) > 0


def test_a_conversation_too_large_to_be_read_whole_stays_where_it_began(placer: Placer) -> None:
    """Its home key alone is known: where many requests could branch, but this is one going on."""
    body = chat("hello " * 300)
    began = send(placer, body)
    began.__exit__(None, None, None)
    for turn in range(1, 40):  # its engine has had more than its share soon
        keys = placer.keys(body, MODEL, "", beginning_of=200_000 + 100 * turn)
        ticket = placer.place(MODEL, keys, ())
        assert ticket is not None
        assert ticket.choice.engine == began.choice.engine
        assert ticket.choice.placement.option.missing == 0
        assert ticket.choice.tokens >= 50_000
        ticket.__exit__(None, None, None)


def test_a_conversation_goes_on_where_it_began(placer: Placer) -> None:
    first = send(placer, chat("hello " * 300, system="system " * 100))
    first.computed()
    for _ in range(30):
        send(placer, chat("other " * 300, system="system " * 100)).__exit__(None, None, None)
    body = chat("hello " * 300, "answer " * 50, "and then?", system="system " * 100)
    assert send(placer, body).endpoint == first.endpoint


def test_a_tenants_prefix_draws_no_other_tenant(placer: Placer) -> None:
    system = "You are helpful. " * 200
    send(placer, chat("hi", system=system), "one")
    assert send(placer, chat("hi", system=system), "one").choice.matched > 500
    assert send(placer, chat("hi", system=system), "two").choice.matched == 0


def test_a_cache_salt_is_in_the_key(placer: Placer) -> None:
    body = chat("hi " * 1000)
    send(placer, body)
    assert send(placer, body).choice.matched > 500
    assert send(placer, body | {"cache_salt": "mine"}).choice.matched == 0


def test_a_second_question_about_a_document_waits_for_nobody_but_goes_to_the_document(
    placer: Placer,
) -> None:
    document = "a fact " * 600
    first = send(placer, chat(document + "why?"))
    assert send(placer, chat(document + "when?")).endpoint == first.endpoint


def test_routers_agree_before_anything_is_known() -> None:
    one, other = fresh(), fresh()
    for i in range(20):
        body = chat(f"{i} " * 500)
        keys = one.keys(body, MODEL, "")
        chosen = [each._fleets["demo"].choose(keys, NAMES).engine for each in (one, other)]
        assert chosen[0] == chosen[1]


def test_two_questions_about_a_new_document_go_to_one_engine_by_way_of_two_routers() -> None:
    """Neither router has heard of what the other one has sent."""
    taken = set[str]()
    for i in range(8):
        document = f"fact {i} " * 600
        first, second = (
            send(fresh(), chat(document + question)).endpoint.name for question in ("why?", "when?")
        )
        assert first == second
        taken.add(first)
    assert len(taken) > 1


def test_the_choice_can_be_made_again_from_what_is_told(placer: Placer) -> None:
    for i in range(1000):
        ticket = send(placer, chat(f"{i % 40} " * (50 + i % 200)))
        assert chosen_again(ticket.told(), NAMES) == ticket.endpoint.name
        if i % 3:
            ticket.computed()


def test_a_choice_without_some_of_the_engines_can_be_made_again(placer: Placer) -> None:
    """Of those that were ejected, busy or tried before, "-" is told: each keeps its place."""
    for i in range(200):
        left_out = {NAMES[i % 4], NAMES[i % 3]}
        keys = placer.keys(chat(f"{i % 40} " * 50), MODEL, "")
        ticket = placer.place(MODEL, keys, left_out)
        assert ticket is not None
        told = ticket.told()
        assert {n for n, o in zip(NAMES, told["options"].split(","), strict=True) if o == "-"} == (
            left_out
        )
        assert chosen_again(told, NAMES) == ticket.endpoint.name


def test_an_engine_with_a_long_queue_loses_a_conversation_to_one_that_is_idle(
    placer: Placer,
) -> None:
    first = send(placer, chat("hello " * 100))
    name = first.endpoint.name
    placer.take("demo", name, PrefixUpdate(1, 0, load=Load(queued_tokens=90_000)))
    body = chat("hello " * 100, "answer", "and then?")
    ticket = send(placer, body)
    assert ticket.endpoint.name != name
    assert ticket.choice.placement.reason == "spilled"


def test_tokens_are_learnt_from_what_engines_count() -> None:
    fleet = Fleet(Clock())
    keys = Placer(b"").keys(chat("word " * 1000), MODEL, "")
    for _ in range(200):
        fleet.learn(keys, keys.total_bytes // 2)
    assert fleet.choose(keys, NAMES).tokens == pytest.approx(keys.total_bytes // 2, rel=0.01)
    fleet.learn(keys, 0)
