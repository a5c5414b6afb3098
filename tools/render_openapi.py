"""Writes router/yaie_router/openapi.json: the engine's description of what the router forwards, and
the router's own paths. The router serves the file, and so loads no types that check bodies.

`--check` writes nothing and fails when the file is stale.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie.server.routes import ENDPOINTS, Endpoint
from yaie.server.web.openapi import document
from yaie_router import routes

FILE = Path(__file__).parents[1] / "router" / "yaie_router" / "openapi.json"
SERVED = {*routes.FORWARDED, *routes.OTHERS, *routes.OWN}


def page() -> str:
    """The document, as JSON."""
    described = document(routed(), title="yaie router")
    for name in {one.body.__name__ for one in routed() if one.body is not None}:
        _require_model(described["components"]["schemas"][name])
    return _lines(described, 3) + "\n"


def routed() -> Iterator[Endpoint]:
    """The endpoints that the router has, too, under the paths that it has."""
    for one in ENDPOINTS:
        paths = tuple(path for path in one.paths if re.sub(r"{(\w+):\w+}", r"{\1}", path) in SERVED)
        if paths:
            yield replace(one, paths=paths)


def _lines(value: Any, depth: int) -> str:
    """JSON with a line for each member of the outer `depth` objects: a line for each operation."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    members = (f"{json.dumps(name)}: {_lines(one, depth - 1)}" for name, one in value.items())
    return "{\n" + ",\n".join(members) + "\n}"


def _require_model(schema: dict[str, Any]) -> None:
    """An engine knows which model is meant; a router has to be told."""
    schema["required"] = ["model", *schema.get("required", ())]
    field = schema["properties"]["model"]
    described = {"description": "Name of the model.", "title": field["title"]}
    schema["properties"]["model"] = next(one for one in field["anyOf"] if one["type"] == "string")
    schema["properties"]["model"] |= described


if __name__ == "__main__":
    sys.exit(pages.write(FILE, page, __doc__))
