"""OpenAI's wire types with yaie's extensions: the fields of requests and the usage in responses.

All requests go through `parse`: it takes JSON values and returns a frozen request, or raises an
InvalidRequestError that names the field. Null means omitted, and unknown fields are accepted. A
field that would change the output but is not implemented is refused, so that it is not silently
ignored.
"""

from yaie_api.http.openai.chat import MAX_TEMPLATE_VARIABLES, ChatCompletionRequest
from yaie_api.http.openai.completion import MAX_PROMPTS, CompletionRequest
from yaie_api.http.openai.generation import GenerationRequest, StreamOptions
from yaie_api.http.openai.messages import MAX_MESSAGES, MAX_PARTS, Message, conversation
from yaie_api.http.openai.refused import CONSTRAINTS, FORMATS, IGNORED, NOT_IMPLEMENTED
from yaie_api.http.openai.tokenize import DetokenizeRequest, TokenizeRequest
from yaie_api.http.openai.tools import MAX_TOOLS, NamedTool, Tool, ToolFunction
from yaie_api.http.openai.usage import Usage
from yaie_api.http.wire import MAX_CONTAINERS, MAX_DEPTH, MAX_FIELDS, parse

__all__ = [
    "CONSTRAINTS",
    "FORMATS",
    "IGNORED",
    "MAX_CONTAINERS",
    "MAX_DEPTH",
    "MAX_FIELDS",
    "MAX_MESSAGES",
    "MAX_PARTS",
    "MAX_PROMPTS",
    "MAX_TEMPLATE_VARIABLES",
    "MAX_TOOLS",
    "NOT_IMPLEMENTED",
    "ChatCompletionRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "GenerationRequest",
    "Message",
    "NamedTool",
    "StreamOptions",
    "TokenizeRequest",
    "Tool",
    "ToolFunction",
    "Usage",
    "conversation",
    "parse",
]
