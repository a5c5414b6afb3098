"""The shape of what the Codex CLI (0.169) sends, its long texts cut short."""

from typing import Any

COMMAND: dict[str, Any] = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs a command in a PTY.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "tty": {"type": "boolean"}},
        "required": ["cmd"],
        "additionalProperties": False,
    },
}
AGENT: dict[str, Any] = {
    "type": "object",
    "properties": {"target": {"type": "string"}},
    "required": ["target"],
    "additionalProperties": False,
}
AGENTS: dict[str, Any] = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Tools for spawning and managing sub-agents.",
    "tools": [
        {
            "type": "function",
            "name": "close_agent",
            "description": "Close an agent.",
            "strict": False,
            "parameters": AGENT,
        },
        {
            "type": "function",
            "name": "wait_agent",
            "description": "Wait for one.",
            "strict": False,
            "parameters": AGENT,
        },
    ],
}
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. This is a FREEFORM tool, so do not wrap the patch in JSON.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: "*** Begin Patch" LF line+ "*** End Patch"\n'
        'line: "+" /(.*)/ LF\n\n%import common.LF\n',
    },
}
CODEX: dict[str, Any] = {
    "model": "stub",
    "stream": True,
    "input": [
        {
            "type": "message",
            "id": "msg_9c249228-0e80-5c3d-9888-a64439db86ad",
            "role": "developer",
            "content": [{"type": "input_text", "text": "You are a coding agent."}],
        },
        {
            "type": "message",
            "id": "msg_01a2036a-8ff2-7d12-9af7-438129d9986e",
            "role": "developer",
            "content": [
                {"type": "input_text", "text": "<skills_instructions/>"},
                {"type": "input_text", "text": "<permissions/>"},
            ],
        },
        {
            "type": "message",
            "id": "msg_01a2036a-8ff2-7d12-9af7-439868f65719",
            "role": "user",
            "content": [{"type": "input_text", "text": "<environment_context/>"}],
        },
        {
            "type": "message",
            "id": "msg_01a2036a-8ffb-7852-ab97-0ee8b3c3af59",
            "role": "user",
            "content": [{"type": "input_text", "text": "Say hello."}],
        },
    ],
    "tools": [COMMAND, AGENTS, PATCH, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a2036a-8fbf-7dc2-bc7b-bdb3d3b67532",
    "client_metadata": {"originator": "codex_exec"},
}
