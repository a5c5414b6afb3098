"""Makes conversations: from WordNet's senses, from the manuals' headings, and from `handwritten`.

A conversation is a list of (role, text). Every random choice comes from the given generator.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import handwritten
from wordnet import Sense

Conversation = list[tuple[str, str]]

_ASK = {
    "noun": (
        "What is {a}?", "What is {a}?", "what is {a}", "What does {w} mean?", "Define {w}.",
        "What does the word {w} mean?", "Explain the word {w}.", "Tell me about {a}.", "{w}?",
        "Can you explain what {a} is?", "What is the meaning of {w}?",
    ),
    "other": (
        "What does {w} mean?", "What does it mean to {w}?", "Define {w}.", "Define the word {w}.",
        "Explain the word {w}.", "What is the meaning of {w}?", "{w}?",
    ),
}  # fmt: skip
_PASSAGE = (
    "Answer from this passage only.\n\n{p}\n\nQuestion: {q}", "{p}\n\nQuestion: {q}",
    "Answer the question with this text:\n\n{p}\n\n{q}", "Context: {p}\n\nQuestion: {q}\nAnswer:",
    "Passage: {p}\n\n{q}", "{q}\n\nAnswer from this passage only: {p}",
    "Use the following context to answer.\n\n{p}\n\nQuestion: {q}",
)  # fmt: skip
_SYSTEM = (
    "You are a helpful assistant.",
    "You are a friendly dictionary.",
    "Answer in one or two sentences.",
    "You are the demo model of yaie.",
)


def article(word: str) -> str:
    """The word with "a" or "an"; names and plurals stay bare."""
    if word[0].isupper() or word.endswith("s"):
        return word
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _sentence(text: str) -> str:
    return _capital(text) + ("" if text[-1] in ".!?" else ".")


def _joined(words: Iterable[str]) -> str:
    items = list(words)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def _question(sense: Sense, rng: random.Random) -> str:
    forms = _ASK["noun" if sense.part == "noun" else "other"]
    form = rng.choice(forms)
    if "to {w}" in form and sense.part != "verb":
        form = forms[0]
    return form.format(w=sense.word, a=article(sense.word))


def _definition(sense: Sense, rng: random.Random) -> str:
    subject = _capital(article(sense.word) if sense.part == "noun" else sense.word)
    if sense.part == "noun":
        body = f"{subject} is {sense.definition}."
    elif sense.part == "verb":
        body = f"To {sense.word} means to {sense.definition}."
    else:
        body = f'The {sense.part} "{sense.word}" means: {sense.definition}.'
    if sense.examples and rng.random() < 0.35:
        body += f" For example: {_sentence(sense.examples[0])}"
    elif sense.synonyms and rng.random() < 0.2:
        body += f" It is also called {_joined(sense.synonyms[:3])}."
    return body


def _follow_up(sense: Sense, rng: random.Random) -> tuple[str, str] | None:
    choices = []
    if sense.examples:
        ask = rng.choice(("Can you give me an example?", f"Use {sense.word} in a sentence.",
                          "Give me an example."))  # fmt: skip
        choices.append((ask, _sentence(sense.examples[-1])))
    if sense.synonyms:
        ask = rng.choice((f"Give me a synonym of {sense.word}.", (f"What is another word for "
                          f"{sense.word}?"), "Is there another word for it?"))  # fmt: skip
        choices.append((ask, f"Another word for {sense.word} is {_joined(sense.synonyms[:3])}."))
    if sense.kind_of and sense.part == "noun":
        ask = f"What kind of thing is {article(sense.word)}?"
        answer = f"{_capital(article(sense.word))} is a kind of {sense.kind_of}."
        choices.append((ask, answer))
    return rng.choice(choices) if choices else None


def from_sense(sense: Sense, rng: random.Random) -> Conversation:
    """One conversation about a word: its meaning, a follow-up, or both."""
    first = (_question(sense, rng), _definition(sense, rng))
    follow = _follow_up(sense, rng)
    turns = [first]
    if follow and rng.random() < 0.35:
        turns = [first, follow]
    elif follow and rng.random() < 0.1 and "it?" not in follow[0] and sense.word in follow[0]:
        turns = [follow]
    return [part for ask, answer in turns for part in (("user", ask), ("assistant", answer))]


def from_passage(
    senses: Sequence[Sense], rng: random.Random, invent: Callable[[random.Random], str]
) -> Conversation:
    """A question behind one to three sentences, one of which answers it, word by word.

    Half of the words are invented: what they mean has to be read, and no word is told a wrong way.
    """
    told = rng.sample(senses, rng.randint(1, 3))
    words = [invent(rng) if rng.random() < 0.5 else sense.word for sense in told]
    sentences = [
        f"{_capital(article(word))} is {sense.definition}."
        for word, sense in zip(words, told, strict=True)
    ]
    chosen = rng.randrange(len(told))
    subject = article(words[chosen])
    ask = rng.choice(("What is {}?", "what is {}", "What does the passage say about {}?")).format(
        subject
    )
    passage = rng.choice((" ", "\n")).join(sentences)
    form = rng.choice(_PASSAGE)
    return [("user", form.format(p=passage, q=ask)), ("assistant", sentences[chosen])]


def from_page(page: list[tuple[str, str]], rng: random.Random) -> Iterator[Conversation]:
    """Headings of a manual page become questions, the first paragraph below them the answer."""
    for (tag, heading), (next_tag, text) in itertools.pairwise(page):
        title = re.sub(r"^[\d.]+\s*", "", heading).strip(" .")
        fits = 4 < len(title) < 50 and 60 < len(text) < 500 and text[-1] in ".!"
        if tag.startswith("h") and next_tag == "p" and fits and title[0].isalpha():
            ask = rng.choice(("Tell me about {}.", "Explain {}.", "What do you know about {}?"))
            yield [("user", ask.format(title)), ("assistant", text)]


def from_hand(rng: random.Random) -> Conversation:
    """One or two handwritten exchanges."""

    def exchange() -> Conversation:
        questions, answers = rng.choice(handwritten.TOPICS)
        return [("user", rng.choice(questions)), ("assistant", rng.choice(answers))]

    def greeting() -> Conversation:
        ask = rng.choice(handwritten.GREETING_QUESTIONS)
        return [("user", ask), ("assistant", rng.choice(handwritten.GREETING_ANSWERS))]

    start = greeting() if rng.random() < 0.2 else exchange()
    return start + exchange() if rng.random() < 0.3 else start


def from_arithmetic(rng: random.Random) -> Conversation:
    """Sums and differences of small numbers."""
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.5:
        word, symbol, result = "plus", "+", a + b
    else:
        a, b = max(a, b), min(a, b)
        word, symbol, result = "minus", "-", a - b
    ask = rng.choice((f"What is {a} {word} {b}?", f"What is {a} {symbol} {b}?", f"{a} {symbol} {b}",
                      f"How much is {a} {word} {b}?"))  # fmt: skip
    return [("user", ask), ("assistant", f"{a} {word} {b} is {result}.")]


def with_system(conversation: Conversation, rng: random.Random) -> Conversation:
    """Sometimes a system message stands first."""
    if rng.random() < 0.15:
        return [("system", rng.choice(_SYSTEM)), *conversation]
    return conversation
