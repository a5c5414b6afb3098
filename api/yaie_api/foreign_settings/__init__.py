"""What vLLM's and Ollama's settings are called here: `vllm` and `ollama` are the tables, and
`verdict` says what becomes of one value. Command lines and the keywords of `LLM` read the same.
"""
