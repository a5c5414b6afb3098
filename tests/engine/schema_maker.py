"""Makes JSON schemas from seeds, with instances that fit and others that do not.

Every maker returns a schema and a function that draws instances of it. What does not fit is made by
changing what fits, and kept where the validator agrees.
"""

import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs

from engine.schema_judge import Case

Rng = random.Random
Draw = Callable[[Rng], Any]
Made = tuple[Any, Draw]

N_VALID, N_INVALID = 6, 12
NAMES = ["id", "name", "größe", "日付", "a b", "items", "type", "x-y", "value", "tags", "city", "n"]
WORDS = [
    "",
    "red",
    "blue sky",
    "Zürich",
    "東京",
    "😀",
    'q"uote',
    "back\\slash",
    "tab\tnew\nline",
    "/",
]
PATTERNS = {
    r"^[a-z]{2,4}$": ["ab", "wxyz"],
    r"^\d{3}-\d{2}$": ["123-45"],
    r"^(GET|POST) /[a-z/]*$": ["GET /a/b", "POST /"],
    r"^#[0-9A-Fa-f]{6}$": ["#00fF9a"],
    r"ab+c": ["abc", "xxabbbcyy"],
    r"^[^@\s]+@[^@\s]+\.[a-z]+$": ["me@example.org"],
    r"^v\d+(\.\d+)*$": ["v1", "v1.20.3"],
}
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"],
    "date-time": ["2024-05-01T12:30:00Z", "2024-05-01T12:30:00.5+02:00"],
    "time": ["12:30:00Z"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "ipv4": ["192.168.0.1"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334"],
    "email": ["someone@example.com"],
    "hostname": ["www.example.com"],
    "uri": ["https://example.com/a?b=c#d"],
}


def make_case(seed: int) -> Case:
    """The schema of a seed."""
    rng = random.Random(seed)
    maker = _Maker(rng)
    schema, draw = maker.value(3) if rng.random() < 0.2 else maker.record(3)
    if maker.definitions:
        schema = {**schema, "$defs": maker.definitions}
    validate = jsonschema_rs.validator_for(schema, validate_formats=True).is_valid
    valid = [draw(rng) for _ in range(N_VALID)]
    wrong = [instance for instance in valid if not validate(instance)]
    assert not wrong, (seed, schema, wrong)
    changed = [_changed(rng, rng.choice(valid)) for _ in range(4 * N_INVALID)]
    invalid = [instance for instance in changed if not validate(instance)]
    return Case(f"seed {seed}", schema, valid, invalid[:N_INVALID])


class _Maker:
    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.definitions: dict[str, Any] = {}
        self._draws: dict[str, Draw] = {}

    def value(self, depth: int) -> Made:
        leaves = [self.integer, self.number, self.string, self.pattern, self.format]
        leaves += [self.enum, self.constant, self.boolean, self.nullable]
        nested = [self.record, self.array, self.tuple, self.map, self.any_of, self.one_of]
        if depth > 0 and self._rng.random() < 0.5:
            return self._rng.choice([*nested, self.reference, self.all_of])(depth - 1)
        return self._rng.choice(leaves)()

    # -- leaves -----------------------------------------------------------------------------

    def integer(self) -> Made:
        rng = self._rng
        low = rng.randint(-50, 50)
        high = low + rng.randint(0, 300)
        match rng.randint(0, 4):
            case 0:
                return {"type": "integer"}, lambda r: r.randint(-(10**6), 10**6)
            case 1:
                return {"type": "integer", "minimum": low}, lambda r: r.randint(low, low + 10**5)
            case 2:
                step = rng.choice([2, 5, 7])
                schema = {"type": "integer", "multipleOf": step, "minimum": 0, "maximum": 100}
                return schema, lambda r: step * r.randint(0, 100 // step)
            case 3:
                bounds = {"exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
                return {"type": "integer", **bounds}, lambda r: r.randint(low, high)
            case _:
                bounds = {"minimum": low, "maximum": high}
                return {"type": "integer", **bounds}, lambda r: r.randint(low, high)

    def number(self) -> Made:
        rng = self._rng
        low = rng.randint(-40, 40) / 4
        high = low + rng.randint(1, 80) / 4
        if rng.random() < 0.4:
            return {"type": "number"}, lambda r: r.choice([0, -1.5, 3e10, 1.25e-7, 10**12, 2.0])
        schema = {"type": "number", "minimum": low, "maximum": high}
        return schema, lambda r: round(r.uniform(low, high), 3)

    def string(self) -> Made:
        rng = self._rng
        if rng.random() < 0.4:
            return {"type": "string"}, lambda r: r.choice(WORDS)
        low = rng.randint(0, 4)
        high = low + rng.randint(0, 9)
        letters = 'abcXYZ 012éü日😀"\\\n'
        schema = {"type": "string", "minLength": low, "maxLength": high}
        return schema, lambda r: "".join(r.choices(letters, k=r.randint(low, high)))

    def pattern(self) -> Made:
        pattern, samples = self._rng.choice(list(PATTERNS.items()))
        return {"type": "string", "pattern": pattern}, lambda r: r.choice(samples)

    def format(self) -> Made:
        name, samples = self._rng.choice(list(FORMATS.items()))
        return {"type": "string", "format": name}, lambda r: r.choice(samples)

    def enum(self) -> Made:
        values = self._rng.sample([*WORDS, 0, -7, 2.5, True, None, [1, "x"], {"k": [None]}], k=4)
        return {"enum": values}, lambda r: r.choice(values)

    def constant(self) -> Made:
        value = self._rng.choice([*WORDS, 12, False, None, [], {"a": "b"}])
        return {"const": value}, lambda _: value

    def boolean(self) -> Made:
        return {"type": "boolean"}, lambda r: r.choice([True, False])

    def nullable(self) -> Made:
        schema = {"type": ["string", "null", "integer"]}
        return schema, lambda r: r.choice([None, 5, "x", *WORDS])

    # -- nested -----------------------------------------------------------------------------

    def record(self, depth: int) -> Made:
        """Properties, some required; others forbidden, or allowed with a schema."""
        rng = self._rng
        names = rng.sample(NAMES, k=rng.randint(0, 5))
        made = {name: self.value(depth - 1) for name in names}
        required = [name for name in names if rng.random() < 0.6]
        schema: dict[str, Any] = {"type": "object"}
        schema["properties"] = {name: part for name, (part, _) in made.items()}
        if required:
            schema["required"] = required
        extra: Draw | None = None
        match rng.randint(0, 3):
            case 0:
                extra = lambda r: r.choice([1, "x", None, [2]])  # noqa: E731 - as the others
            case 1:
                schema["additionalProperties"], extra = self.value(0)
            case _:
                schema["additionalProperties"] = False

        def draw(r: Rng) -> dict[str, Any]:
            kept = [name for name in names if name in required or r.random() < 0.5]
            instance = {name: made[name][1](r) for name in kept}
            if extra is not None and r.random() < 0.5:
                instance[f"extra {r.randint(0, 9)}"] = extra(r)
            return instance

        return schema, draw

    def array(self, depth: int) -> Made:
        rng = self._rng
        schema, item = self.value(depth - 1)
        low = rng.randint(0, 2)
        high = low + rng.randint(0, 3)
        bounds = rng.choice([{}, {"minItems": low}, {"minItems": low, "maxItems": high}])
        made = {"type": "array", "items": schema, **bounds}
        return made, lambda r: [item(r) for _ in range(r.randint(low, high))]

    def tuple(self, depth: int) -> Made:
        parts = [self.value(depth - 1) for _ in range(self._rng.randint(1, 3))]
        n = len(parts)
        schema = {"type": "array", "prefixItems": [part for part, _ in parts], "items": False}
        return {**schema, "minItems": n}, lambda r: [draw(r) for _, draw in parts]

    def map(self, depth: int) -> Made:
        schema, draw = self.value(depth - 1)
        keys = {"^k[0-9]+$": schema}
        made = {"type": "object", "patternProperties": keys, "additionalProperties": False}
        return made, lambda r: {f"k{i}": draw(r) for i in range(r.randint(0, 3))}

    def any_of(self, depth: int) -> Made:
        parts = [self.value(depth - 1) for _ in range(self._rng.randint(2, 3))]
        schema = {"anyOf": [part for part, _ in parts]}
        return schema, lambda r: r.choice(parts)[1](r)

    def one_of(self, depth: int) -> Made:
        """Told apart by a constant, as discriminated unions are."""
        kinds = self._rng.sample(["cat", "dog", "fisch", "鳥"], k=2)
        parts = {kind: self.value(depth - 1) for kind in kinds}
        schema = {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, "v": part},
                    "required": ["kind", "v"],
                    "additionalProperties": False,
                }
                for kind, (part, _) in parts.items()
            ]
        }

        def draw(r: Rng) -> dict[str, Any]:
            kind = r.choice(kinds)
            return {"kind": kind, "v": parts[kind][1](r)}

        return schema, draw

    def all_of(self, depth: int) -> Made:
        """Two objects that hold at once."""
        left, draw_left = self.value(depth - 1)
        right, draw_right = self.value(0)
        schema = {
            "allOf": [
                {"type": "object", "properties": {"l": left}, "required": ["l"]},
                {"properties": {"r": right}, "required": ["r"], "type": "object"},
            ]
        }
        return schema, lambda r: {"l": draw_left(r), "r": draw_right(r)}

    def reference(self, depth: int) -> Made:
        """To a definition that may be used twice, or that contains itself."""
        if self._draws and self._rng.random() < 0.3:
            name = self._rng.choice(list(self._draws))
            return {"$ref": f"#/$defs/{name}"}, self._draws[name]
        name = f"d{len(self.definitions)}"
        self.definitions[name] = {}
        schema, draw = self._tree(name) if self._rng.random() < 0.4 else self.value(depth - 1)
        self.definitions[name], self._draws[name] = schema, draw
        return {"$ref": f"#/$defs/{name}"}, draw

    def _tree(self, name: str) -> Made:
        schema = {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "next": {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]},
            },
            "required": ["v", "next"],
            "additionalProperties": False,
        }

        def draw(r: Rng) -> dict[str, Any]:
            return {"v": r.randint(-9, 9), "next": draw(r) if r.random() < 0.4 else None}

        return schema, draw


# -- what does not fit --------------------------------------------------------------------------

OTHERS = [None, True, 0, -1, 10**7, 0.5, "", "zzz", "x" * 40, [], [[]], {}, {"zzz": 1}]


def _changed(rng: Rng, value: Any) -> Any:
    """A copy with one change somewhere."""
    if rng.random() < 0.7 and value:
        if isinstance(value, dict):
            return _changed_object(rng, value)
        if isinstance(value, list):
            return _changed_list(rng, value)
        if isinstance(value, str):
            index = rng.randrange(len(value))
            return rng.choice([value[:index] + value[index + 1 :], value + value, value + "!"])
        if not isinstance(value, bool):
            return rng.choice([value + 1, value - 1, value + 1000, -value, value + 0.5])
    return rng.choice(OTHERS)


def _changed_object(rng: Rng, value: dict[str, Any]) -> dict[str, Any]:
    key = rng.choice(list(value))
    match rng.randint(0, 4):
        case 0:
            return {name: item for name, item in value.items() if name != key}
        case 1:
            return {**value, "zzz": rng.choice(OTHERS)}
        case _:
            return {**value, key: _changed(rng, value[key])}


def _changed_list(rng: Rng, value: list[Any]) -> list[Any]:
    index = rng.randrange(len(value))
    match rng.randint(0, 4):
        case 0:
            return value[:index] + value[index + 1 :]
        case 1:
            return [*value, *(rng.choices(OTHERS, k=rng.randint(1, 4)))]
        case _:
            return [*value[:index], _changed(rng, value[index]), *value[index + 1 :]]
