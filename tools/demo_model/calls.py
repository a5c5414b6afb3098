"""Makes conversations in which the model calls functions, and answers that are JSON.

Names, arguments and values are drawn at random, so that the model has to read them from the
functions and the question; only the manner is learned. Every random choice comes from the generator
that is passed in. A turn is a message as the chat template reads it.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Turn = dict[str, Any]
Value = str | int | float | bool
Schema = dict[str, Any]

_SYLLABLES = (
    "ba", "be", "bi", "bo", "da", "de", "do", "fa", "fi", "ga", "go", "ha", "he", "ka", "ke",
    "ki", "ko", "la", "le", "li", "lo", "ma", "me", "mi", "mo", "na", "ne", "no", "pa", "pe",
    "ra", "re", "ri", "ro", "sa", "se", "si", "so", "ta", "te", "ti", "to", "va", "ve", "vi",
    "wa", "we", "ya", "yo", "za",
)  # fmt: skip
_CITIES = (
    "Paris", "London", "Berlin", "Tokyo", "Oslo", "Rome", "Madrid", "Lisbon", "Vienna", "Prague",
    "Boston, MA", "Chicago", "Austin, TX", "Seattle, WA", "New York", "Los Angeles, CA", "Denver",
    "Cairo", "Lima", "Delhi", "Seoul", "Sydney", "Dublin", "Athens", "Zurich", "Kyoto", "Bern",
)  # fmt: skip
_SUBJECTS = (
    "cats", "dogs", "birds", "computers", "rain", "the sea", "coffee", "robots", "music", "bread",
    "trains", "winter", "fish", "horses", "clouds", "pods", "cables", "apples", "bears", "penguins",
)  # fmt: skip
_FOREIGN = "你好世界集团公司北京上海こんにちは株式会社東京大阪さくらПриветМирКомпанияéüßñçåø"
_WEATHER = ("sunny", "cloudy", "rainy", "windy", "cold", "foggy", "warm", "snowy")
_VERBS = ("get", "find", "make", "compute", "look_up", "check", "send", "list", "read", "run")
_NOUNS = ("value", "magic", "code", "price", "status", "report", "item", "record", "score", "note")
_THINGS = ("river", "tower", "bridge", "school", "market", "garden", "station", "museum", "harbour",
           "library", "castle", "village", "valley", "road", "island", "forest")  # fmt: skip
_ATTRIBUTES = ("capital", "price", "owner", "colour", "address", "height", "code", "size",
               "stock price", "length", "mayor", "age", "score", "status")  # fmt: skip
_TRAITS = (
    "old",
    "small",
    "famous",
    "quiet",
    "green",
    "long",
    "new",
    "busy",
    "open",
    "closed",
    "high",
)
_DOMAINS = ("org", "com", "example", "example.org")
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NO_FUNCTION = (
    "I cannot do that: no function for it was given to me.",
    "I cannot find that out: it needs a function, and I was given none for it.",
)
RESULTS = 0.8
"""Share of the calls that are followed by the function's result and the answer."""


@dataclass(frozen=True)
class Task:
    """A question, the function that answers it, its arguments, what it returns and what is said."""

    question: str
    name: str
    description: str
    arguments: dict[str, Value]
    optional: dict[str, type] = field(default_factory=dict)
    result: str = ""
    answer: str = ""


def conversation(rng: random.Random, others: Callable[[], list[Turn]]) -> dict[str, Any]:
    """Variables of the chat template: `messages` and `tools`. `others` makes an unrelated talk."""
    task = rng.choice(_TASKS)(rng)
    distractors = [rng.choice(_TASKS)(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]
    offered = [task, *(other for other in distractors if other.name != task.name)]
    rng.shuffle(offered)
    tools = [function(one, rng) for one in offered]
    if rng.random() < 0.12:  # nothing to call: an ordinary answer
        return {"messages": others(), "tools": tools}
    turns = _exchange(task, rng)
    if rng.random() < 0.12:
        again = rng.choice(_TASKS)(rng)
        if again.name not in {one.name for one in offered}:
            tools.append(function(again, rng))
            turns += _exchange(again, rng)
    return {"messages": turns, "tools": tools}


def unanswerable(rng: random.Random) -> dict[str, Any]:
    """A question that needs a function, where none for it is declared; variables as above."""
    wanted, others = rng.choice(_OUTSIDE), [make for make in _TASKS if make not in _OUTSIDE]
    count = rng.choice((0, 0, 1, 2))
    tools = [function(rng.choice(others)(rng), rng) for _ in range(count)]
    turns = [
        {"role": "user", "content": wanted(rng).question},
        {"role": "assistant", "content": rng.choice(_NO_FUNCTION)},
    ]
    return {"messages": turns} | ({"tools": tools} if tools else {})


def function(task: Task, rng: random.Random) -> Schema:
    """The declaration of a task's function, written as clients write it."""
    properties: dict[str, Schema] = {}
    plain = rng.random() < 0.5
    for name, value in task.arguments.items():
        properties[name] = {"type": _JSON_TYPES[type(value)]}
        if not plain:
            properties[name]["description"] = f"the {name.replace('_', ' ')}"
    for name, kind in task.optional.items():
        properties[name] = {"type": _JSON_TYPES[kind]}
    parameters: Schema = {"type": "object", "properties": properties}
    if task.arguments:
        parameters["required"] = list(task.arguments)
    declared: Schema = {"name": task.name, "description": task.description}
    if rng.random() < 0.1:
        del declared["description"]
    return declared | {"parameters": parameters}


def _exchange(task: Task, rng: random.Random) -> list[Turn]:
    call = {"name": task.name, "arguments": task.arguments}
    turns: list[Turn] = [
        {"role": "user", "content": task.question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    if rng.random() < RESULTS:
        result, answer = task.result, task.answer
        if rng.random() < 0.04:
            cause = " ".join(_word(rng) for _ in range(rng.randint(1, 3)))
            cause = rng.choice((f"{cause} not found", f"no {cause}", f"{cause} is not allowed"))
            result, answer = f"{rng.choice(('error', 'Error'))}: {cause}", f"It failed: {cause}."
        turns += [{"role": "tool", "content": result}, {"role": "assistant", "content": answer}]
    return turns


# -- what the functions do -------------------------------------------------------------------


def invented_word(rng: random.Random) -> str:
    """A word of two to four syllables that means nothing."""
    return _word(rng)


def _word(rng: random.Random, least: int = 2) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(least, least + 2)))


def _function_name(rng: random.Random) -> str:
    shape = rng.random()
    if shape < 0.4:
        return f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
    if shape < 0.7:
        return f"{rng.choice(_NOUNS)}_{rng.choice(('function', 'tool', 'lookup', _word(rng)))}"
    return f"{_word(rng)}_{_word(rng)}"


def _number(rng: random.Random) -> int:
    return rng.choice((rng.randint(0, 9), rng.randint(0, 99), rng.randint(0, 9999)))


def _name(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choice(_FOREIGN) for _ in range(rng.randint(2, 9)))
    return " ".join(_word(rng).capitalize() for _ in range(rng.randint(1, 2)))


def _value_of(rng: random.Random) -> Task:
    name, key, x = _function_name(rng), rng.choice(("input", "x", "n", "value", _word(rng))), 0
    x = _number(rng)
    ask = rng.choice((
        f"What is the value of {name}({x})? Use the tool.", f"What is {name}({x})?",
        f"Call {name} with {x}.", f"Use {name} on {x}.", f"Run {name}({x}) for me.",
        f"Please call the function {name} with {key} {x}.",
    ))  # fmt: skip
    result = _number(rng)
    answer = f"{name}({x}) is {result}."
    return Task(ask, name, f"Apply {name} to a number.", {key: x}, {}, str(result), answer)


def _no_arguments(rng: random.Random) -> Task:
    name = _function_name(rng) + rng.choice(("", "_now", "_no_args"))
    ask = rng.choice((
        f"What is the value of {name}()? Use the tool.", f"Call {name}.", f"Run {name} please.",
        f"What does {name} say?",
    ))  # fmt: skip
    result = _number(rng)
    return Task(ask, name, f"Return {name}.", {}, {}, str(result), f"{name} returned {result}.")


def _weather(rng: random.Random) -> Task:
    city, state = rng.choice(_CITIES), rng.choice(_WEATHER)
    if rng.random() < 0.4:
        city = _name(rng)
    ask = rng.choice((
        f"What is the weather in {city}?", f"What's the weather like in {city}?",
        f"How is the weather in {city} today?", f"Weather in {city}?", f"Is it cold in {city}?",
    ))  # fmt: skip
    name = rng.choice(("get_weather", "weather", "current_weather", "get_current_weather"))
    optional = rng.choice(({}, {"unit": str}, {"days": int}))
    key = rng.choice(("location", "city", "place"))
    return Task(ask, name, "Get the weather at a location.", {key: city}, optional,
                rng.choice((f"It's {state}.", state, json.dumps({"weather": state}))),
                f"The weather in {city} is {state}.")  # fmt: skip


def _adder(rng: random.Random) -> Task:
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    ask = rng.choice((f"What is {a} + {b}?", f"What is {a} + {b}", f"Add {a} and {b}.",
                      f"How much is {a} plus {b}?"))  # fmt: skip
    name = rng.choice(("add", "adder", "sum_two", "my_adder", "add_numbers", "my_adder_tool"))
    keys = rng.choice((("a", "b"), ("x", "y"), ("first", "second")))
    return Task(ask, name, "Add two numbers.", dict(zip(keys, (a, b), strict=True)), {},
                str(a + b), f"{a} + {b} is {a + b}.")  # fmt: skip


def _customer(rng: random.Random) -> Task:
    kind = rng.choice(("customer", "user", "account", "project", "company", "team"))
    name = _name(rng)
    quote = rng.choice(("'", '"', ""))
    ask = rng.choice((
        f"Create a {kind} named {quote}{name}{quote}", f"Add the {kind} {quote}{name}{quote}.",
        f"Please make a new {kind} called {quote}{name}{quote}.",
        f"Create a {kind} named {quote}{name}{quote} ({_name(rng)}) - a {_word(rng)} one",
    ))  # fmt: skip
    key = rng.choice((f"{kind}_name", "name", "title"))
    optional = rng.choice(({}, {"description": str}))
    tool = rng.choice((f"create_{kind}", f"new_{kind}", f"unicode_{kind}", f"add_{kind}"))
    return Task(ask, tool, f"Create a {kind}.", {key: name}, optional,
                "done", f"The {kind} {name} has been created.")  # fmt: skip


def _greeting(rng: random.Random) -> Task:
    kind = rng.choice(("pirate", "king", "robot", "teacher", "sailor", _word(rng)))
    ask = rng.choice((f"Using the tool, generate a {kind.capitalize()} greeting.",
                      f"Greet me like a {kind}.", f"Make a {kind} greeting."))  # fmt: skip
    key = rng.choice(("answer_style", "style", "manner"))
    return Task(ask, rng.choice(("greeting", "greeting_generator", "greet")),
                "Generate a greeting in a style of speaking.", {key: kind}, {},
                f"Hello from the {kind}!", f"Hello from the {kind}!")  # fmt: skip


def _message(rng: random.Random) -> Task:
    person = rng.choice(
        (_name(rng), _name(rng), f"{_word(rng)}@{_word(rng)}.{rng.choice(_DOMAINS)}")
    )
    text = f"{_word(rng)} {_word(rng)} {_word(rng)}"
    ask = rng.choice((f'Send "{text}" to {person}.', f"Tell {person}: {text}",
                      f"Write to {person} that {text}."))  # fmt: skip
    keys = rng.choice((("to", "text"), ("recipient", "message"), ("person", "body")))
    return Task(ask, rng.choice(("send_message", "send_mail", "tell")), "Send a message.",
                dict(zip(keys, (person, text), strict=True)), {}, "sent",
                f"I have sent the message to {person}.")  # fmt: skip


def _switch(rng: random.Random) -> Task:
    thing, on = _word(rng), rng.random() < 0.5
    ask = f"Turn the {thing} {'on' if on else 'off'}."
    return Task(ask, rng.choice(("switch", "set_switch", "turn")), "Turn a thing on or off.",
                {"thing": thing, "on": on}, {}, "ok",
                f"The {thing} is {'on' if on else 'off'} now.")  # fmt: skip


def _measured_weather(rng: random.Random) -> Task:
    city, state = rng.choice((*_CITIES, _name(rng), _name(rng))), rng.choice(_WEATHER)
    degrees, unit = rng.randint(-20, 40), rng.choice(("celsius", "fahrenheit"))
    ask = rng.choice((
        f"What is the weather in {city}?", f"What's the weather like in {city} today?",
        f"How warm is it in {city}?", f"What is the temperature in {city}?",
        f"Tell me the weather in {city}.",
    ))  # fmt: skip
    name = rng.choice(("get_weather", "get_current_weather", "get_temperature", "weather_now"))
    degree_key = rng.choice(("temperature", "temp", "degrees", f"temp_{unit[0]}"))
    state_key = rng.choice(("condition", "conditions", "weather", "description", "sky"))
    key = rng.choice(("location", "city", "place"))
    report: dict[str, Value] = {degree_key: degrees, state_key: state}
    if rng.random() < 0.3:
        report = {key: city, **report}
    if rng.random() < 0.3:
        report["unit"] = unit
    result, answer = rng.choice((
        (json.dumps(report, ensure_ascii=False), f"It is {degrees} degrees and {state} in {city}."),
        (f"{degrees} degrees, {state}", f"It is {degrees} degrees and {state} in {city}."),
        (f"{degrees} degrees and {state}", f"It is {degrees} degrees and {state} in {city}."),
        (f"{state}, {degrees}°C", f"It is {degrees}°C and {state} in {city}."),
        (f"{degrees}°C", f"It is {degrees}°C in {city}."),
        (json.dumps({degree_key: degrees}), f"It is {degrees} degrees in {city}."),
    ))  # fmt: skip
    return Task(ask, name, rng.choice(("Get the weather at a location.", "Current weather.",
                                       "Get the current weather of a city.")),
                {key: city}, rng.choice(({}, {"unit": str})), result, answer)  # fmt: skip


def _clock(rng: random.Random) -> Task:
    time = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    name = rng.choice(("get_time", "current_time", "clock", "get_current_time", "time_in"))
    if rng.random() < 0.3:
        ask = rng.choice(("What time is it?", "Tell me the time.", "What is the time now?"))
        result = rng.choice((time, json.dumps({"time": time})))
        return Task(ask, name, "Get the current time.", {}, {}, result, f"It is {time}.")
    city = rng.choice((*_CITIES, _name(rng)))
    ask = rng.choice((f"What time is it in {city}?", f"What is the time in {city}?",
                      f"Tell me the time in {city}."))  # fmt: skip
    key = rng.choice(("city", "location", "place", "timezone"))
    result = rng.choice((time, json.dumps({"time": time}), json.dumps({key: city, "time": time})))
    return Task(ask, name, "Get the time of a place.", {key: city}, {}, result,
                f"It is {time} in {city}.")  # fmt: skip


def _field(rng: random.Random) -> Task:
    """A record is looked up; the answer is one of its fields."""
    kind = rng.choice(("user", "order", "customer", "product", "book", "server", "pod", "ticket"))
    who: Value = rng.choice((_name(rng), rng.randint(1, 9999)))
    record = _record(rng) | {rng.choice(("status", "owner", "level", _word(rng))): _word(rng)}
    record = {key: value for key, value in record.items() if not isinstance(value, bool)}
    wanted = rng.choice(list(record))
    ask = rng.choice((
        f"What is the {wanted} of {kind} {who}?", f"Tell me the {wanted} of {kind} {who}.",
        f"Look up {kind} {who} and tell me the {wanted}.", f"{kind.capitalize()} {who}: {wanted}?",
    ))  # fmt: skip
    key = rng.choice((kind, f"{kind}_id", "id", "name", "key"))
    verb = rng.choice(("get", "find", "look_up", "read", "fetch"))
    shown = dict(rng.sample(list(record.items()), len(record)))
    return Task(ask, f"{verb}_{kind}", f"Get what is known of a {kind}.", {key: who}, {},
                json.dumps(shown, ensure_ascii=False),
                f"The {wanted} of {kind} {who} is {record[wanted]}.")  # fmt: skip


def _attribute(rng: random.Random) -> Task:
    """The result is a bare value; the question tells what it is."""
    what = rng.choice((*_ATTRIBUTES, _word(rng)))
    thing = rng.choice((_name(rng), _name(rng).upper(), rng.choice(_CITIES)))
    value = str(rng.choice((_name(rng), _number(rng), rng.randint(1, 99999) / 100, _word(rng))))
    ask = rng.choice(("What is the {} of {}?", "Tell me the {} of {}.", "Find the {} of {}.",
                      "Do you know the {} of {}?")).format(what, thing)  # fmt: skip
    key = rng.choice(("name", "of", "thing", "country", "symbol", "city", "id"))
    tool = f"{rng.choice(('get', 'find', 'look_up', 'read'))}_{what.replace(' ', '_')}"
    return Task(ask, tool, f"Get the {what} of something.", {key: thing}, {},
                rng.choice((value, value, json.dumps({what: value}, ensure_ascii=False))),
                f"The {what} of {thing} is {value}.")  # fmt: skip


def _file(rng: random.Random) -> Task:
    """The result is a text of some lines; the answer is that text."""
    folder, ending = rng.choice(("", "docs/", "/tmp/", "src/")), rng.choice(("md", "txt", "py"))
    stem = rng.choice((_word(rng), _word(rng), _word(rng), "README", "main", "notes"))
    path = f"{folder}{stem}.{ending}"
    lines = [
        " ".join(_word(rng) for _ in range(rng.randint(1, 6))).capitalize()
        + rng.choice((".", "", ":"))
        for _ in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.4:
        lines = [f"# {lines[0]}", *lines[1:]]
    ask = rng.choice((f"Read {path}.", f"Read {path}", f"Show me {path}.", f"What is in {path}?"))
    text = "\n".join(lines)
    return Task(ask, rng.choice(("read_file", "cat", "open_file", "show_file")), "Read a file.",
                {rng.choice(("path", "file", "filename")): path}, {}, text,
                f"{path} contains:\n{text}")  # fmt: skip


def _search(rng: random.Random) -> Task:
    """The result is a sentence that nobody could know; the answer is that sentence."""
    thing, place, trait = rng.choice(_THINGS), _name(rng), rng.choice(_TRAITS)
    sentence = rng.choice((
        f"The {thing} of {place} is {trait}.", f"{place} is a {trait} {thing}.",
        f"The {thing} of {place} was built in {rng.randint(900, 2020)} by {_name(rng)}.",
        f"{place} has {rng.randint(2, 9000)} people and a {trait} {thing}.",
        f"The {trait} {thing} of {place} lies near {_name(rng)}.",
        f"{place} is the capital of {_name(rng)}.",
        f"The {thing} was found by {place} in {rng.randint(900, 2020)}.",
    ))  # fmt: skip
    subject = rng.choice((place, f"the {thing} of {place}", f"{place} {thing}"))
    ask = rng.choice((f"Search for {subject}.", f"What do you know about {subject}?",
                      f"Find out about {subject}.", f"Look up {subject}.", f"What is {subject}?",
                      f"Use the tool to learn about {subject}."))  # fmt: skip
    name = rng.choice(("search", "web_search", "look_up", "find_facts", "wiki", "search_docs"))
    key = rng.choice(("query", "q", "text", "topic"))
    result = rng.choice((sentence, sentence, json.dumps({"result": sentence}, ensure_ascii=False)))
    return Task(ask, name, "Search for facts.", {key: subject}, {}, result, sentence)


_TASKS: tuple[Callable[[random.Random], Task], ...] = (
    _value_of, _value_of, _no_arguments, _weather, _adder, _customer, _greeting, _message,
    _switch, _measured_weather, _measured_weather, _clock, _field, _attribute,
    _file, _search, _search,
)  # fmt: skip
_OUTSIDE: tuple[Callable[[random.Random], Task], ...] = (
    _weather, _measured_weather, _clock, _file, _message,
)  # fmt: skip
"""What a language model alone cannot know or do."""


# -- answers that are JSON -------------------------------------------------------------------


def _joke(rng: random.Random) -> tuple[str, str]:
    subject = rng.choice(_SUBJECTS)
    return rng.choice((
        (f"Why did the {subject} cross the road?", "To get to the other side."),
        (f"What do {subject} say in the morning?", "Good morning."),
        (f"Why are {subject} so good at school?", "Because they always listen."),
        (f"How do you make {subject} laugh?", "You tell them a joke."),
        (f"What is the best thing about {subject}?", "They never tell bad jokes."),
    ))  # fmt: skip


def json_answer(rng: random.Random) -> list[Turn]:
    """A question that asks for JSON with certain keys, and the answer."""
    make = rng.choice((_joke_as_json, _record_as_json, _record_as_json, _schema_as_json))
    question, answer = make(rng)
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": json.dumps(answer, ensure_ascii=False)},
    ]


def _joke_as_json(rng: random.Random) -> tuple[str, dict[str, Value]]:
    setup, punchline = _joke(rng)
    keys = rng.choice((("setup", "punchline"), ("question", "answer"), (_word(rng), _word(rng))))
    ask = rng.choice(("Tell me a joke about {s}.", "Give me a joke about {s}.", "A joke on {s}?"))
    subject = next((s for s in _SUBJECTS if s in setup), "cats")
    question = f"{ask.format(s=subject)} {_wish(keys, rng)}"
    return question, dict(zip(keys, (setup, punchline), strict=True))


def _wish(keys: Sequence[str], rng: random.Random) -> str:
    quote = rng.choice(("'", '"', "`"))
    listed = [f"{quote}{key}{quote}" for key in keys]
    joined = " and ".join((", ".join(listed[:-1]), listed[-1])) if len(listed) > 1 else listed[0]
    return rng.choice((
        "Return the result as a JSON with {k} keys. Return nothing other than JSON.",
        "Answer with JSON that has {k}.", "Reply as a JSON object with the keys {k}.",
        "Give it as JSON with {k}.", "Write JSON with the keys {k} and nothing else.",
    )).format(k=joined)  # fmt: skip


def _record_as_json(rng: random.Random) -> tuple[str, dict[str, Value]]:
    record = _record(rng)
    told = ", ".join(f"{key} {value}" for key, value in record.items())
    ask = rng.choice(("Write this as JSON: {t}.", "Turn into JSON: {t}", "As JSON please: {t}."))
    if rng.random() < 0.5:
        return ask.format(t=told), record
    return f"{told.capitalize()}. {_wish(list(record), rng)}", record


def _record(rng: random.Random) -> dict[str, Value]:
    made: dict[str, Callable[[], Value]] = {
        "name": lambda: _name(rng), "age": lambda: rng.randint(1, 99),
        "city": lambda: rng.choice(_CITIES), "color": lambda: _word(rng),
        "count": lambda: _number(rng), "price": lambda: rng.randint(1, 999) / 10,
        "ready": lambda: rng.random() < 0.5, _word(rng): lambda: _word(rng),
    }  # fmt: skip
    chosen = rng.sample(list(made), rng.randint(1, 4))
    return {key: made[key]() for key in chosen}


def _schema_as_json(rng: random.Random) -> tuple[str, dict[str, Value]]:
    record = _record(rng)
    properties = {key: {"type": _JSON_TYPES[type(value)]} for key, value in record.items()}
    schema = {"type": "object", "properties": properties, "required": list(record)}
    told = ", ".join(f"{key} is {value}" for key, value in record.items())
    shown = json.dumps(schema, ensure_ascii=False)
    return f"{told}. Answer with JSON of this schema: {shown}", record
