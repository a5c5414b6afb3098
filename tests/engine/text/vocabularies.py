"""Small vocabularies for the text tests: a byte-level one and one with byte fallback."""

import functools
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog. User: hello! Assistant: how are you?",
    "Grüße aus Köln, ça va? 日本語のテキスト 😀🎉 naïve café — stop and go, END of story.",
] * 4

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@functools.cache
def byte_level() -> Tokenizer:
    """300 tokens of byte-level BPE plus three special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


@functools.cache
def byte_fallback() -> Tokenizer:
    """Pieces with a space mark and the 256 byte tokens: the shape of sentencepiece."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["▁", "a", "b", "▁hello", "▁world", "stop", "é", "日", "▁▁"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<s>", "</s>")])
    return tokenizer


@functools.cache
def word_pieces() -> Tokenizer:
    """Pieces inside a word begin with `##`: the text of a piece depends on what stands before."""
    pieces = ["[UNK]", "play", "##ing", "the", "dog", "##s", "##é", "日", "##本", ".", "'", "[X]"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens([AddedToken("[X]", special=True)])
    return tokenizer


@functools.cache
def space_marks() -> Tokenizer:
    """Pieces with a space mark and no byte tokens; spaces come from the decoder."""
    pieces = ["<unk>", "▁", "▁hello", "▁world", "a", "b", "é", "▁日", "本", "▁▁"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def write_model_folder(folder: Path, template: str | None = CHATML) -> Path:
    """tokenizer.json and tokenizer_config.json of the byte-level vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level().save(str(folder / "tokenizer.json"))
    config: dict[str, object] = {"eos_token": "<|im_end|>", "bos_token": None}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
