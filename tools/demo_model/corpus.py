"""Builds the training set: tokenizer, packed token ids for training, held-out ids for evaluation.

    python tools/demo_model/corpus.py TEXTS OUT [--tokenizer FILE] [--sums 60000]

TEXTS is what `sources.py` made. OUT receives tokenizer.json, train.npy, chat.npy and the held-out
heldout_prose.npy and heldout_chat.npy (token ids, uint16), and chat_starts.npy (uint32): where each
conversation of chat.npy begins. One document in fifty, chosen by the hash of its text, is held out.
"""

import argparse
import hashlib
import random
from pathlib import Path

import calls
import dialogues
import numpy as np
import prose
import wordnet
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from yaie.text.prompt.template import ChatTemplate

TEMPLATE = ChatTemplate(
    Path("engine/yaie/checkpoint/builtin/yaie-demo/chat_template.jinja").read_text(encoding="utf-8")
)
VOCAB_SIZE = 4096
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SEED = 20
CALLS, UNANSWERABLE, JSON_ANSWERS = 120_000, 16_000, 30_000
"""Function calls are shorter than they look: about 200 tokens, most of them the declarations."""
SUMS = 60_000
"""Frequent, because they tell the model not to call `add` where no function is declared."""
PASSAGES = 24_000
"""Questions behind a passage, as a retrieval example asks them."""


def held_out(text: str) -> bool:
    """Whether a document belongs to the held-out fiftieth."""
    return hashlib.sha256(text.encode()).digest()[0] % 50 == 0


def render(conversation: dialogues.Conversation) -> str:
    """A conversation as the chat template writes it."""
    return render_turns(messages=as_turns(conversation))


def as_turns(conversation: dialogues.Conversation) -> list[calls.Turn]:
    """The messages that a client would send."""
    return [{"role": role, "content": text} for role, text in conversation]


def render_turns(messages: list[calls.Turn], **variables: object) -> str:
    """The model's own chat template, applied as the server applies it."""
    return TEMPLATE.render(messages, add_generation_prompt=False, variables=variables)


def structured(rng: random.Random) -> list[str]:
    """Conversations with function calls, and with answers in JSON."""

    def unrelated() -> list[calls.Turn]:
        return as_turns(dialogues.from_hand(rng))

    made = [render_turns(**calls.conversation(rng, unrelated)) for _ in range(CALLS)]
    made += [render_turns(**calls.unanswerable(rng)) for _ in range(UNANSWERABLE)]
    return made + [render_turns(calls.json_answer(rng)) for _ in range(JSON_ANSWERS)]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE: any text round-trips. `max_token_length` keeps grammars possible."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pack(tokenizer: Tokenizer, texts: list[str], end: str = "") -> tuple[np.ndarray, np.ndarray]:
    """All texts in one row of ids (uint16), each followed by `end`; and where each begins."""
    encoded = [item.ids for item in tokenizer.encode_batch([text + end for text in texts])]
    row = np.concatenate([np.array(ids, dtype=np.uint16) for ids in encoded])
    ends = np.cumsum([len(ids) for ids in encoded])
    return row, np.concatenate([[0], ends[:-1]]).astype(np.uint32)


def conversations(
    root: Path, pages: list, rng: random.Random, sums: int = SUMS
) -> tuple[list[str], list[str]]:
    """(training, held-out) conversations; frequent words and handwritten ones come more often."""
    train: list[str] = []
    test: list[str] = []
    nouns: list[wordnet.Sense] = []
    for sense in wordnet.senses(root / "wordnet-base/usr/share/wordnet"):
        if held_out(sense.word + sense.definition):
            test.append(render(dialogues.from_sense(sense, rng)))
            continue
        if sense.part == "noun" and sense.tagged:
            nouns.append(sense)
        copies = 1 + (3 if sense.tagged else 0) + (4 if sense.tagged > 2 else 0)
        train += [
            render(dialogues.with_system(dialogues.from_sense(sense, rng), rng))
            for _ in range(copies)
        ]
    for page in pages:
        target = test if held_out(page[0][1]) else train
        target += [render(item) for item in dialogues.from_page(page, rng)]
    train += [render(dialogues.with_system(dialogues.from_hand(rng), rng)) for _ in range(12000)]
    train += [render(dialogues.from_arithmetic(rng)) for _ in range(sums)]
    train += [
        render(dialogues.from_passage(nouns, rng, calls.invented_word)) for _ in range(PASSAGES)
    ]
    train += structured(rng)
    rng.shuffle(train)
    return train, test


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of a model to go on with")
    parser.add_argument("--sums", type=int, default=SUMS, help="sums without functions")
    arguments = parser.parse_args()
    root, out = arguments.texts, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    pages = [page for page in prose.documents(root) if page]
    texts = ["\n\n".join(text for _, text in page) for page in pages]
    test_texts = [text for text in texts if held_out(text[:200])]
    train_texts = [text for text in texts if not held_out(text[:200])]
    chat, chat_test = conversations(root, pages, rng, arguments.sums)
    rng.shuffle(train_texts)
    if arguments.tokenizer:
        tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    else:
        tokenizer = train_tokenizer(train_texts + list(chat[:60000]))
    tokenizer.save(str(out / "tokenizer.json"))
    rows = {"train": train_texts, "heldout_prose": test_texts}
    for name, texts in rows.items():
        np.save(out / f"{name}.npy", pack(tokenizer, texts, END_OF_TEXT)[0])
    ids, starts = pack(tokenizer, chat)
    np.save(out / "chat.npy", ids)
    np.save(out / "chat_starts.npy", starts)
    np.save(out / "heldout_chat.npy", pack(tokenizer, chat_test)[0])
    for path in sorted(out.glob("*.npy")):
        print(path.name, f"{np.load(path).size:,}")


if __name__ == "__main__":
    main()
