"""What runs before a server is ready leaves no trace."""

from engine.runtime.test_runner_metamorphic import REQUESTS, Answers
from yaie.runtime.rehearsal import rehearse


def rehearsed(**settings: object) -> Answers:
    answers = Answers(**settings)
    runner = answers.engine.runner
    rehearse(
        runner,
        seats=runner.slots.scratch,
        longest=64,
        step_tokens=48,
        page_size=runner.kv.page_size,
        vocab_size=runner.model.vocab_size,
    )
    return answers


def test_answers_after_a_rehearsal_are_those_without_one() -> None:
    assert rehearsed().of(REQUESTS) == Answers().of(REQUESTS)


def test_one_seat_is_enough() -> None:
    assert rehearsed(max_num_seqs=1).of(REQUESTS) == Answers(max_num_seqs=1).of(REQUESTS)
