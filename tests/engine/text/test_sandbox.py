"""Templates that would run for ever or fill the memory end by themselves, and soon."""

import threading
import time
from typing import Any

import pytest

from yaie.text.prompt.sandbox import Sandbox, TemplateLimitError, TemplateTimeoutError
from yaie.text.prompt.template import ChatTemplate
from yaie_api.errors import InvalidRequestError

SANDBOX = Sandbox()
GROWING = (
    "{{% set ns = namespace(x='aaaa') %}}"
    "{{% for i in range(60) %}}{{% set ns.x = {} %}}{{% endfor %}}"
)
LOOPS = (
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% for i in range(90000) recursive %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
)


def render(source: str, *, limit_s: float = 5.0, **variables: Any) -> str:
    template = SANDBOX.from_string(source)
    with SANDBOX.limit(limit_s):
        return "".join(template.generate(variables))


@pytest.mark.parametrize("source", LOOPS, ids=range(3))
def test_what_runs_too_long_is_ended(source: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(TemplateTimeoutError):
        render(source, limit_s=0.1)
    assert time.monotonic() - started_s < 5.0


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 500000000 }}",
        "{{ 500000000 * [1] }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ 'a'.center(1000000000) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a\n' | indent(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ ('a' * 100000).replace('a', 'a' * 100000) }}",
        "{{ ('a' * 100000) | replace('a', 'a' * 100000) }}",
        "{{ ('a' * 100000).join(range(100000) | map('string') | list) }}",
        "{{ range(100000) | join('a' * 100000) }}",
        GROWING.format("ns.x ~ ns.x"),
        GROWING.format("ns.x + ns.x"),
        GROWING.format("[ns.x, ns.x] | join"),
        GROWING.format("'%s%s' | format(ns.x, ns.x)"),
        GROWING.format("'{}{}'.format(ns.x, ns.x)"),
        GROWING.format("'%s%s' % (ns.x, ns.x)"),
    ],
)
def test_what_grows_too_large_is_ended(source: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(TemplateLimitError):
        render(source, limit_s=5.0)
    assert time.monotonic() - started_s < 8.0


def test_what_templates_do_with_texts_still_works() -> None:
    source = (
        "{{ 'a' ~ 1 ~ none }}|{{ 'x=%s' % 3 }}|{{ '%s %s' | format(1, 2) }}"
        "|{{ '{}!'.format('b') }}|{{ [1, 2] * 2 }}|{{ 2 * 3.5 }}|{{ 7 % 4 }}|{{ 2 ** 10 }}"
        "|{{ ['a', 'b'] | join(', ') }}"
        "|{{ turns | join(' ', attribute='a') }}|{{ 'aXbX'.replace('X', '--') }}"
        "|{{ 'aXb' | replace('X', '') }}|{{ 'a\nb' | indent(2) }}|{{ (1,) + (2,) }}"
        "|{{ '-'.join(['p', 'q']) }}|{{ ' t ' | trim }}|{{ turns | tojson(indent=1) | length }}"
    )
    assert render(source, turns=[{"a": "q"}, {"a": "w"}]) == (
        "a1None|x=3|1 2|b!|[1, 2, 1, 2]|7.0|3|1024|a, b|q w|a--b--|ab|a\n  b|(1, 2)|p-q|t|38"
    )


def test_loops_see_themselves_as_before() -> None:
    source = (
        "{% for m in turns %}{{ loop.index }}{% if loop.last %}.{% endif %}{% else %}none"
        "{% endfor %}{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('z') }}"
        "{% set block %}{% for i in [1] %}b{% endfor %}{% endset %}{{ block }}"
    )
    assert render(source, turns=[1, 2]) == "12.zzb"
    assert render(source, turns=[]) == "nonezzb"


def test_a_limit_is_of_one_thread() -> None:
    source = "{% for i in range(100) %}{% for j in range(100) %}{% endfor %}{% endfor %}ok"
    found: list[str] = []
    with SANDBOX.limit(0.0):
        thread = threading.Thread(target=lambda: found.append(render(source, limit_s=30.0)))
        thread.start()
        thread.join(60)
    assert found == ["ok"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{{ raise_exception('Only user and assistant.') }}", "Only user and assistant."),
        ("{{ messages.nothing.here }}", "these messages."),
        ("{{ 1 / 0 }}", "these messages."),
        ("{{ 'a' * 500000000 }}", "too long"),
        ("{{ messages.__class__.__mro__ }}", "these messages."),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "these messages."),
    ],
)
def test_a_refusal_is_told_without_the_insides(source: str, told: str) -> None:
    with pytest.raises(InvalidRequestError, match="The chat template refuses") as refused:
        ChatTemplate(source).render([], add_generation_prompt=True, variables={})
    assert told in refused.value.message
    assert not any(word in refused.value.message for word in ("object", "list", "__", "division"))
