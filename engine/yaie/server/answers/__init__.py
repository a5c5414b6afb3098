"""From the engine's tokens to an answer, whole or streamed, for all APIs."""
