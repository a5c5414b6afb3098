"""What `yaie.llm.LLM` is made of: what goes in, what is on its way, what comes out."""
