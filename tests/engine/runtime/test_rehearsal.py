"""What runs before a server is ready leaves no trace."""

from engine.runtime.test_runner_metamorphic import REQUESTS, Answers
from yaie.runtime.worker.rehearsal import rehearse


def rehearsed(**settings: object) -> Answers:
    answers = Answers(max_model_len=64, **settings)
    runner = answers.engine.runner
    rehearse(
        runner,
        max_num_seqs=runner.slots.scratch,
        longest=runner.max_model_len,
        step_tokens=4096,
        page_size=runner.kv.page_size,
        vocab_size=runner.model.vocab_size,
    )
    return answers


def test_answers_after_a_rehearsal_are_those_without_one() -> None:
    assert rehearsed().of(REQUESTS) == Answers(max_model_len=64).of(REQUESTS)


def test_one_seat_is_enough() -> None:
    alone = Answers(max_model_len=64, max_num_seqs=1)
    assert rehearsed(max_num_seqs=1).of(REQUESTS) == alone.of(REQUESTS)
