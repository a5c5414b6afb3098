"""The offline API: texts and ids in, completions out, through the real engine on the CPU."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.models.oracle import reference, save
from engine.text.vocabularies import write_model_folder
from yaie import LLM, SamplingParams
from yaie.offline import inputs
from yaie.progress import Progress
from yaie.runtime.worker import runner
from yaie_api.errors import InvalidRequestError

VARIANT = "llama-gqa"
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(save(VARIANT, tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), device="cpu", cpu_threads=1, kv_cache_tokens=2048, seed=0)


def test_token_ids_in_any_number_of_prompts(llm: LLM) -> None:
    expected = [reference(VARIANT, length) for length in (1, 16, 37)]
    outputs = llm.generate([one.prompt for one in expected], GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [one.greedy[:12] for one in expected]
    assert [o.prompt_token_ids for o in outputs] == [one.prompt for one in expected]
    assert {o.outputs[0].finish_reason for o in outputs} == {"length"}
    single = llm.generate(list(expected[1].prompt), GREEDY)
    assert [o.outputs[0].token_ids for o in single] == [expected[1].greedy[:12]]


def test_texts_are_tokenized_and_answers_detokenized(llm: LLM) -> None:
    output = llm.generate("The quick brown fox", GREEDY)[0]
    assert output.prompt == "The quick brown fox"
    assert output.prompt_token_ids == tuple(llm.tokenizer.encode("The quick brown fox"))
    answer = output.outputs[0]
    assert answer.text == llm.tokenizer.decode(answer.token_ids)


def test_a_second_run_finds_the_prefix(llm: LLM) -> None:
    prompt = list(range(3, 53))
    first, second = (llm.generate(prompt, GREEDY)[0] for _ in range(2))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 48)
    assert first.outputs == second.outputs


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    free = llm.generate("lazy dog", GREEDY)[0].outputs[0]
    stop = free.text[len(free.text) // 2 :][:3]
    assert len(stop) == 3
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop=(stop,))
    stopped = llm.generate("lazy dog", params)[0].outputs[0]
    assert stopped.text == free.text[: free.text.index(stop)]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert len(stopped.token_ids) < len(free.token_ids)


def test_a_stop_token_ends_the_output_and_is_named(llm: LLM) -> None:
    greedy = reference(VARIANT, 16).greedy
    stop_id = next(
        token for i, token in enumerate(greedy[:12]) if i > 2 and token not in greedy[:i]
    )
    params = SamplingParams(temperature=0.0, max_tokens=64, stop_token_ids=(stop_id,))
    answer = llm.generate([reference(VARIANT, 16).prompt], params)[0].outputs[0]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop_id)
    assert answer.token_ids == greedy[: greedy.index(stop_id) + 1]


def test_chat_renders_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hello"}]
    output = llm.chat(messages, GREEDY)[0]
    assert output.prompt_token_ids == tuple(llm.tokenizer.encode_chat(messages))
    both = llm.chat([messages, messages], GREEDY)
    assert [o.prompt_token_ids for o in both] == [output.prompt_token_ids] * 2


def test_chat_takes_the_messages_that_the_server_takes(llm: LLM) -> None:
    parts = [{"type": "text", "text": "hello"}]
    outputs = llm.chat(
        [[{"role": "user", "content": "hello"}], [{"role": "user", "content": parts}]], GREEDY
    )
    assert outputs[0].prompt_token_ids == outputs[1].prompt_token_ids
    for bad in ([], [{"role": "user"}], "hi", [{"role": "nobody", "content": "x"}]):
        with pytest.raises(InvalidRequestError):
            llm.chat(bad, GREEDY)  # type: ignore[arg-type]  # that is the point


def test_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in (3, 5)]
    outputs = llm.generate([[5, 6], [5, 6]], params)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [3, 5]
    with pytest.raises(InvalidRequestError, match="2 prompts and 1"):
        llm.generate([[5], [6]], params[:1])


def test_a_seed_repeats_and_the_engines_own_seeds_differ(llm: LLM) -> None:
    seeded = SamplingParams(temperature=1.5, max_tokens=12, seed=9, ignore_eos=True)
    free = SamplingParams(temperature=1.5, max_tokens=12, ignore_eos=True)
    one, other = (llm.generate([[5, 6, 7]], seeded)[0].outputs[0].token_ids for _ in range(2))
    assert one == other
    assert len({o.outputs[0].token_ids for o in llm.generate([[5, 6, 7]] * 4, free)}) == 4


def test_a_prompt_that_cannot_fit_is_refused_and_the_engine_goes_on(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="maximum context length is 256 tokens"):
        llm.generate([[5, 6], [7] * 300], GREEDY)
    with pytest.raises(InvalidRequestError):
        llm.generate([[]], GREEDY)
    with pytest.raises(InvalidRequestError):
        llm.generate([[5, 512]], GREEDY)
    assert len(llm.generate([[5, 6]], GREEDY)[0].outputs[0].token_ids) == 12


def test_an_interrupt_leaves_the_engine_usable(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "add_tokens", interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([[5, 6, 7]], GREEDY)
    expected = reference(VARIANT, 16)
    output = llm.generate([expected.prompt], GREEDY)[0]
    assert output.outputs[0].token_ids == expected.greedy[:12]


def test_ctrl_c_inside_a_step_takes_effect_after_it(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange = runner.prepare_inputs

    def press(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return arrange(*args)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "prepare_inputs", press)
        with pytest.raises(KeyboardInterrupt):
            llm.generate([[5, 6, 7], [8, 9]], GREEDY)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert llm._driver.is_idle
    expected = reference(VARIANT, 16)
    output = llm.generate([expected.prompt], GREEDY)[0]
    assert output.outputs[0].token_ids == expected.greedy[:12]


def test_a_second_ctrl_c_does_not_wait_and_does_not_hang(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(folder), device="cpu", cpu_threads=1, kv_cache_tokens=512)

    def hang(*_: Any) -> Any:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still here")

    monkeypatch.setattr(runner, "prepare_inputs", hang)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[5, 6, 7]], GREEDY)


@pytest.mark.parametrize(
    ("prompts", "params"),
    [
        (None, None),
        ([None], None),
        ([[1.5, 2]], None),
        ([1, "a"], None),
        ([b"text"], None),
        ({"prompt_token_ids": 5}, None),
        ([{"prompt": "a", "multi_modal_data": {"image": 1}}], None),
        ([{}], None),
        ("cut \ud83d", None),
        (["a"], {"temperature": 0}),
        (["a"], [{"temperature": 0}]),
        (["a", "b"], [GREEDY]),
    ],
)
def test_wrong_types_are_refused_in_words(llm: LLM, prompts: Any, params: Any) -> None:
    with pytest.raises(InvalidRequestError):
        llm.generate(prompts, params)
    assert llm._driver.is_idle


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "high"},
        {"priority": 1.5},
        {"priority": [None]},
        {"priority": [1, 2]},
        {"structured_outputs": 5},
        {"structured_outputs": {"shape": "round"}},
    ],
)
def test_wrong_options_are_refused_in_words(llm: LLM, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm.generate(["a"], GREEDY, **options)
    assert caught.value.param == next(iter(options))
    assert llm._driver.is_idle


def test_prompts_may_have_the_names_that_vllm_gives_them(llm: LLM) -> None:
    text, ids = "The quick", llm.tokenizer.encode("The quick")
    named = [{"prompt": text}, {"prompt_token_ids": ids}, {"prompt_token_ids": ids, "prompt": None}]
    expected = llm.generate(text, GREEDY)[0].outputs
    assert [one.outputs for one in llm.generate(named, GREEDY)] == [expected] * 3
    assert llm.generate({"prompt": text}, GREEDY)[0].prompt == text


def test_prompts_may_be_arrays(llm: LLM) -> None:
    expected = [one.outputs for one in llm.generate([[5, 6], [7, 8]], GREEDY)]
    rows = np.array([[5, 6], [7, 8]])
    assert [one.outputs for one in llm.generate(rows, GREEDY)] == expected  # type: ignore[arg-type]  # typed as sequences
    assert [one.outputs for one in llm.generate(rows[0], GREEDY)] == expected[:1]


def test_threads_take_turns(llm: LLM) -> None:
    prompts = [[3, 4, 5], [9, 8, 7]]
    alone = [llm.generate(prompt, GREEDY)[0].outputs for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(llm.generate, prompt, GREEDY) for prompt in prompts * 2]
        together = [future.result(30)[0].outputs for future in futures]
    assert together == alone * 2


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
USER = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("messages", "options", "param"),
    [
        (USER, {"tools": [5]}, "tools"),
        (USER, {"tools": 5}, "tools"),
        (USER, {"tools": "look"}, "tools"),
        (USER, {"tools": [{"name": "look"}]}, "tools"),
        (USER, {"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        (USER, {"add_generation_prompt": "no"}, "add_generation_prompt"),
        (
            USER,
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        (5, {}, "messages"),
        (None, {}, "prompt"),
        ({"role": "user", "content": "hello"}, {}, "messages"),
        ([5], {}, "messages"),
        ([USER, 5], {}, "messages"),
    ],
)
def test_wrong_conversations_are_refused_in_words(
    llm: LLM, messages: Any, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm.chat(messages, GREEDY, **options)
    assert caught.value.param == param
    assert llm._driver.is_idle


def test_tools_are_told_to_a_model_whose_template_knows_none(llm: LLM) -> None:
    (conversation,) = inputs.conversations(USER, tools=[TOOL])
    assert '"look"' in llm.tokenizer.decode(llm._reader.chat_ids(conversation))


def test_an_answer_goes_on_with_the_last_message(llm: LLM) -> None:
    messages = [*USER, {"role": "assistant", "content": "The quick"}]
    output = llm.chat(messages, GREEDY, continue_final_message=True)[0]
    assert llm.tokenizer.decode(output.prompt_token_ids).endswith("The quick")


@pytest.mark.parametrize("dimensions", [0, 1.5, "4", True, -3])
def test_dimensions_that_are_none_are_refused(llm: LLM, dimensions: Any) -> None:
    with pytest.raises(InvalidRequestError, match="dimensions must be an integer"):
        llm.embed("a", dimensions=dimensions)


@pytest.mark.parametrize("prompts", [5, None, [1.5], {"text": "a"}, b"a", [["a"]]])
def test_what_is_embedded_must_be_prompts(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidRequestError):
        llm.embed(prompts)
    assert llm._driver.is_idle


@pytest.mark.parametrize("sides", [(None, "b"), (5, "a"), ("a", [None])])
def test_what_is_scored_must_be_texts(llm: LLM, sides: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="must be a text or a list of texts"):
        llm.score(*sides)


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_without_a_tokenizer_ids_work_and_texts_say_why_not(tmp_path: Path) -> None:
    llm = LLM(str(save(VARIANT, tmp_path)), device="cpu", cpu_threads=1, kv_cache_tokens=256)
    output = llm.generate([[5, 6]], GREEDY)[0].outputs[0]
    assert (len(output.token_ids), output.text) == (12, "")
    with pytest.raises(InvalidRequestError, match=r"tokenizer\.json"):
        llm.generate("text", GREEDY)
    with pytest.raises(InvalidRequestError, match="stop"):
        llm.generate([[5]], SamplingParams(stop=("x",)))


def test_dummy_weights_need_a_config_only(tmp_path: Path) -> None:
    save(VARIANT, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    settings = {"device": "cpu", "cpu_threads": 1, "kv_cache_tokens": 256, "seed": 3}
    llm = LLM(str(tmp_path), load_format="dummy", **settings)
    assert len(llm.generate([[5, 6]], GREEDY)[0].outputs[0].token_ids) == 12
    assert llm.info.parameters > 0


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"device": "tpu"}, "device"),
        ({"dtype": "int3"}, "dtype"),
        ({"load_format": "pickle"}, "load_format"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_model_len": 257}, "max_model_len"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"kv_cache_tokens": -5}, "kv_cache_tokens"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
    ],
)
def test_settings_that_cannot_work_are_named(
    folder: Path, settings: dict[str, object], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        LLM(str(folder), **settings)
    assert refused.value.param == param


@pytest.mark.parametrize("settings", [{"max_num_seqs": "8"}, {"max_model_len": 1.5}])
def test_settings_of_a_wrong_type_are_refused(folder: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(settings))):
        LLM(folder, **settings)


def test_code_in_the_models_folder_is_never_run(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A native architecture needs none; any other is refused."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "m.M", "AutoModelForCausalLM": "m.M"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "m.py").write_text("raise SystemExit('this must not run')")
    expected = reference(VARIANT, 16)
    model = LLM(str(tmp_path), device="cpu", cpu_threads=1, kv_cache_tokens=256)
    (output,) = model.generate([list(expected.prompt)], GREEDY)
    assert output.outputs[0].token_ids == expected.greedy[:12]
    assert "code in the model's folder is ignored" in [r.message for r in caplog.records]
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["M"], "model_type": "m"})
    )
    with pytest.raises(InvalidRequestError, match="auto_map"):
        LLM(str(tmp_path), device="cpu")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only() -> None:
    times = iter([0.0, 1.0, 1.0, 2.0])
    shown, hidden = Terminal(), io.StringIO()
    for stream in (shown, hidden):
        with Progress(2, shown=True, stream=stream, clock=lambda: next(times, 2.0)) as progress:
            progress.add_tokens(10)
            progress.add_request()
    assert shown.getvalue().startswith("\r0/2 requests")
    assert "1/2 requests · 10 tokens" in shown.getvalue()
    assert hidden.getvalue() == ""


def test_native_models_start_without_transformers(folder: Path) -> None:
    script = (
        "import sys; from yaie import LLM\n"
        "LLM(sys.argv[1], device='cpu', cpu_threads=1, kv_cache_tokens=256)\n"
        "print('transformers' in sys.modules, 'triton' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.split() == ["False", "False"]


def test_several_outputs_of_a_prompt_are_those_of_its_seeds(llm: LLM) -> None:
    prompt = list(range(5, 25))
    several = llm.generate(prompt, SamplingParams(n=3, seed=11, max_tokens=6, ignore_eos=True))
    alone = [
        llm.generate(prompt, SamplingParams(seed=11 + i, max_tokens=6, ignore_eos=True))
        for i in range(3)
    ]
    assert [one.index for one in several[0].outputs] == [0, 1, 2]
    found = [one.token_ids for one in several[0].outputs]
    assert found == [one[0].outputs[0].token_ids for one in alone]
    assert len(set(found)) > 1


def test_log_probabilities_are_told_by_token_id(llm: LLM) -> None:
    params = SamplingParams(
        temperature=0.0, max_tokens=4, ignore_eos=True, logprobs=2, prompt_logprobs=1
    )
    output = llm.generate([7, 8, 9], params)[0]
    answer = output.outputs[0]
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 4
    for token_id, entry in zip(answer.token_ids, answer.logprobs, strict=True):
        assert len(entry) == 2
        assert entry[token_id].rank == 1  # greedy
        assert entry[token_id].logprob == max(one.logprob for one in entry.values()) <= 0
        assert entry[token_id].decoded_token == llm.tokenizer.decode(
            [token_id], skip_special_tokens=False
        )
    assert answer.cumulative_logprob is not None
    assert answer.cumulative_logprob < 0
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert [set(one) >= {i} for one, i in zip(output.prompt_logprobs[1:], (8, 9), strict=True)]


def test_structured_outputs_are_kept_to(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20)
    outputs = llm.generate(["a", "b"], params, structured_outputs={"choice": ["yes", "no"]})
    assert {output.outputs[0].text for output in outputs} <= {"yes", "no"}
    assert {output.outputs[0].finish_reason for output in outputs} == {"stop"}
    with pytest.raises(InvalidRequestError, match="unclosed"):
        llm.generate("a", params, structured_outputs={"regex": "(unclosed"})


def test_bad_words_are_never_said(llm: LLM) -> None:
    said = llm.generate("The quick", GREEDY)[0].outputs[0].text
    word = next(character for character in said if character.isascii() and character.isalpha())
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, bad_words=[word])
    ids = llm.tokenizer.encode(word)
    banned = llm.generate("The quick", params)[0].outputs[0].token_ids
    assert ids[0] not in banned or len(ids) > 1


def test_embeddings_are_unit_vectors_and_equal_for_equal_texts(llm: LLM) -> None:
    first, second, again = llm.embed(["The quick", "brown fox", "The quick"])
    size = llm.info.hidden_size
    assert len(first.outputs.embedding) == size
    assert sum(x * x for x in first.outputs.embedding) == pytest.approx(1.0, abs=1e-5)
    assert first.outputs.embedding == pytest.approx(again.outputs.embedding, abs=1e-5)
    assert first.outputs.embedding != pytest.approx(second.outputs.embedding, abs=1e-2)
    cut = llm.embed("The quick", dimensions=4)[0].outputs.embedding
    assert sum(x * x for x in cut) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(InvalidRequestError, match="dimensions"):
        llm.embed("a", dimensions=size + 1)


def test_a_score_is_a_cosine(llm: LLM) -> None:
    scores = [one.outputs.score for one in llm.score("The quick", ["The quick", "brown fox"])]
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert -1.0 <= scores[1] < 1.0
    with pytest.raises(InvalidRequestError, match="cannot classify"):
        llm.classify("a")


def test_the_prefix_cache_can_be_reset(llm: LLM) -> None:
    prompt = list(range(60, 100))
    llm.generate(prompt, GREEDY)
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens > 0
    llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0
