"""OpenAI's chat completions and text completions, and vLLM's `/tokenize` and `/detokenize`."""
