"""Keywords of vLLM's `LLM(...)` that are flags of a server here, and so none of ours offline."""

from typing import Final

from yaie_api.foreign_settings.verdict import settings, table

OFFLINE: Final = table(
    settings(
        "Calls without sampling_params use SamplingParams(): pass sampling_params.",
        generation_config="vllm",
    ),
    settings(
        "Conversations use the model's own template: put another one into a copy of its folder.",
        chat_template=(),
    ),
    settings(
        "Outputs are not parsed offline: text and tokens are as the model wrote them.",
        reasoning_parser="", tool_call_parser=(), enable_auto_tool_choice=False,
    ),
    settings(
        "It belongs to `yaie serve`: there is no server here.", host=(), port=(), api_key=(),
        api_key_file=(), allowed_origins=(), allowed_methods=(), allowed_headers=(),
        allow_credentials=False, api_server_count=1, shutdown_timeout=0,
        sse_keep_alive_interval=0, admin_port=(), admin_host=(), tenant_header=(),
        tenant_per_api_key=False, otlp_traces_endpoint=(),
    ),
    settings("Configure the logger yaie of Python's logging.", log_level=(), log_format=()),
    settings("Prompts are not logged offline.", log_prompts=False),
    short={},
)  # fmt: skip
