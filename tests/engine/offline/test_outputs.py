"""What outputs look like when they are printed."""

from yaie.offline.outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestOutput,
)


def test_a_completion_shows_its_text_first_and_few_of_many_tokens() -> None:
    output = CompletionOutput(0, " a cat", tuple(range(100)), "length")
    assert repr(output) == (
        "CompletionOutput(text=' a cat', finish_reason='length', "
        "token_ids=(0, 1, 2, 3, 4, 5, … 100 in all), index=0)"
    )


def test_short_lists_are_shown_whole_and_what_there_is_besides() -> None:
    logprobs = ({5: Logprob(-0.5, 1)},)
    output = CompletionOutput(1, "x", (5,), "stop", stop_reason="END", logprobs=logprobs)
    assert repr(output) == (
        "CompletionOutput(text='x', finish_reason='stop', stop_reason='END', token_ids=(5,), "
        "index=1, cumulative_logprob=-0.5)"
    )


def test_a_request_shows_its_outputs_first() -> None:
    completion = CompletionOutput(0, " a cat", (7, 8), "length")
    output = RequestOutput("llm-0", "A dog is", (1, 2, 3), (completion,), 0)
    assert str(output) == (
        f"RequestOutput(outputs=[{completion!r}], prompt='A dog is', prompt_token_ids=(1, 2, 3), "
        "num_cached_tokens=0, request_id='llm-0')"
    )


def test_an_embedding_is_shortened() -> None:
    output = EmbeddingRequestOutput("llm-1", (1, 2), EmbeddingOutput([0.5] * 1024))
    assert repr(output) == (
        "EmbeddingRequestOutput(outputs=EmbeddingOutput(embedding=(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, "
        "… 1024 in all)), prompt_token_ids=(1, 2), request_id='llm-1')"
    )
