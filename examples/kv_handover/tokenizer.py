"""Text to token ids and back, from the vocabulary that the model file carries.

``BpeTokenizer`` is the byte-level byte-pair encoding of SmolLM2 and ``ByteTokenizer`` stands in
where the weights are random. Both are plain objects of the calling thread; a tokenizer caches the
words it has seen, so do not share one between threads.
"""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable

from .weights import Vocabulary, Weights, WeightsError

_IM_START = "<|im_start|>"
_IM_END = "<|im_end|>"
_WORD_CACHE_LIMIT = 50_000


class Tokenizer(ABC):
    """What the two tokenizers share: special tokens, the chat template and streaming."""

    def __init__(self, special: dict[str, int], eos: int, system_prompt: str) -> None:
        for name in (_IM_START, _IM_END):
            if name not in special:
                raise WeightsError(f"the vocabulary has no special token {name}")
        self.special = special
        """The special tokens, by their text."""
        self.eos = eos
        """The token with which the model ends its answer."""
        self.system_prompt = system_prompt
        """The default system message; empty for none."""
        self._special_text = {token: text for text, token in special.items()}
        # The longest first, so that one special token may be the beginning of another.
        names = sorted(special, key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, names)) + ")")

    @abstractmethod
    def _encode_plain(self, text: str) -> list[int]:
        """The tokens of a text without special tokens."""

    @abstractmethod
    def _plain_bytes(self, token: int) -> bytes:
        """The bytes of one token that is not special."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of ``text``.

        Special tokens written out in the text stay plain text unless ``parse_special`` is set:
        a user's message must not be able to end its own turn.
        """
        if not parse_special:
            return self._encode_plain(text)
        tokens: list[int] = []
        for piece in self._special_pattern.split(text):
            if piece in self.special:
                tokens.append(self.special[piece])
            elif piece:
                tokens.extend(self._encode_plain(piece))
        return tokens

    def decode_bytes(self, tokens: Iterable[int], *, skip_special: bool = False) -> bytes:
        """The bytes of the tokens; special ones appear as their text unless skipped."""
        parts = []
        for token in tokens:
            name = self._special_text.get(token)
            if name is None:
                parts.append(self._plain_bytes(token))
            elif not skip_special:
                parts.append(name.encode())
        return b"".join(parts)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens, skip_special=skip_special).decode("utf-8", "replace")

    def chat(self, user: str, system: str | None = None) -> list[int]:
        """One user turn in the model's chat format (ChatML), ready for the model's answer.

        ``system`` replaces the default system message; an empty one leaves it out.
        """
        message = self.system_prompt if system is None else system
        turns = [("system", message)] if message else []
        turns.append(("user", user))
        tokens: list[int] = []
        for role, content in turns:
            tokens.append(self.special[_IM_START])
            tokens.extend(self._encode_plain(f"{role}\n{content}"))
            tokens.append(self.special[_IM_END])
            tokens.extend(self._encode_plain("\n"))
        tokens.append(self.special[_IM_START])
        tokens.extend(self._encode_plain("assistant\n"))
        return tokens

    def stream(self) -> TextStream:
        """A decoder to which tokens are given one by one, to print text as it is made."""
        return TextStream(self)


class TextStream:
    """Turns single tokens into text, holding back characters whose bytes are not complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is certain after this token; special tokens give none."""
        return self._decoder.decode(self._tokenizer.decode_bytes([token], skip_special=True))

    def finish(self) -> str:
        """What was still held back: U+FFFD for a character that never became complete."""
        return self._decoder.decode(b"", final=True)


class BpeTokenizer(Tokenizer):
    """Byte-level BPE with the ``smollm`` word splitting (GPT-2's, with every digit on its own).

    Encoding and decoding gives the text back, less the few bytes that the vocabulary has no token
    for (control characters such as U+0004).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(
            special={vocabulary.tokens[i]: i for i in sorted(vocabulary.special)},
            eos=vocabulary.eos,
            system_prompt=_default_system_prompt(vocabulary.chat_template),
        )
        self._tokens = vocabulary.tokens
        self._ids = {
            text: i for i, text in enumerate(vocabulary.tokens) if i not in vocabulary.special
        }
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(vocabulary.merges):
            left, separator, right = merge.partition(" ")
            if not separator:
                raise WeightsError(f"merge {rank} of the vocabulary is not a pair: {merge!r}")
            self._ranks[left, right] = rank
        self._byte_to_char = _byte_alphabet()
        self._char_to_byte = {char: byte for byte, char in enumerate(self._byte_to_char)}
        self._words: dict[str, list[int]] = {}

    def _encode_plain(self, text: str) -> list[int]:
        tokens: list[int] = []
        for word in split_words(text):
            known = self._words.get(word)
            if known is None:
                known = self._encode_word(word)
                if len(self._words) < _WORD_CACHE_LIMIT:
                    self._words[word] = known
            tokens.extend(known)
        return tokens

    def _encode_word(self, word: str) -> list[int]:
        parts = [self._byte_to_char[byte] for byte in word.encode("utf-8")]
        never = float("inf")
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, never))
            if best not in self._ranks:
                break
            merged: list[str] = []
            position = 0
            while position < len(parts):
                if position < len(pairs) and pairs[position] == best:
                    merged.append(best[0] + best[1])
                    position += 2
                else:
                    merged.append(parts[position])
                    position += 1
            parts = merged
        # This vocabulary lacks tokens for a few bytes (some control characters, and lead bytes of
        # planes where Unicode has no characters): like other runtimes, leave them out.
        return [self._ids[part] for part in parts if part in self._ids]

    def _plain_bytes(self, token: int) -> bytes:
        if not 0 <= token < len(self._tokens):
            raise ValueError(f"token {token} is not one of the {len(self._tokens)} known ones")
        return bytes(self._char_to_byte[char] for char in self._tokens[token])


class ByteTokenizer(Tokenizer):
    """One token per byte, for a model of random weights, whose words mean nothing anyway."""

    def __init__(self, vocab: int) -> None:
        special = {"<|endoftext|>": 0, _IM_START: 1, _IM_END: 2}
        super().__init__(special, eos=special[_IM_END], system_prompt="")
        self._first = len(special)
        if vocab < self._first + 256:
            raise WeightsError(f"{vocab} tokens are too few for {self._first} and 256 bytes")
        self._vocab = vocab

    def _encode_plain(self, text: str) -> list[int]:
        return [self._first + byte for byte in text.encode("utf-8")]

    def _plain_bytes(self, token: int) -> bytes:
        if not 0 <= token < self._vocab:
            raise ValueError(f"token {token} is not one of the {self._vocab} known ones")
        byte = token - self._first
        # A random model mostly picks tokens that stand for no byte: show their number.
        return bytes([byte]) if byte < 256 else f"[{token}]".encode()


def make_tokenizer(weights: Weights) -> Tokenizer:
    """The tokenizer that goes with the weights."""
    if weights.vocabulary is None:
        return ByteTokenizer(weights.config.vocab)
    return BpeTokenizer(weights.vocabulary)


_CONTRACTION = re.compile("'(?:s|t|re|ve|m|ll|d)")
# Over the classes that _char_class gives, not over the text itself: Python's re has no \p{L}.
_SHAPE = re.compile("N| ?L+| ?O+|[ W]+(?![LO])|[ W]+")


def split_words(text: str) -> list[str]:
    """Cuts text where no merge may cross: the ``smollm`` pre-tokenizer.

    The rules are GPT-2's (English contractions; letters or symbols with the one space before
    them; runs of white space, less the space that belongs to the next word), after every numeric
    character has been cut out on its own. The pieces joined are the text.
    """
    classes = "".join(map(_char_class, text))
    words = []
    position = 0
    while position < len(text):
        match = _CONTRACTION.match(text, position) or _SHAPE.match(classes, position)
        # Every class is an alternative of _SHAPE, so there is always a match.
        assert match is not None
        words.append(text[position : match.end()])
        position = match.end()
    return words


def _char_class(char: str) -> str:
    """L letter, N number, ' ' the space itself, W other white space, O anything else."""
    if char == " ":
        return " "
    # Python counts the separators U+001C..U+001F as space, Unicode's White_Space does not.
    if char.isspace() and not "\x1c" <= char <= "\x1f":
        return "W"
    kind = unicodedata.category(char)[0]
    return kind if kind in "LN" else "O"


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary.

    Printable characters of Latin-1 stand for themselves; the others, in order, for the
    characters from U+0100 on, so that every token is visible text.
    """
    alphabet = []
    substitute = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(substitute))
            substitute += 1
    return alphabet


def _default_system_prompt(chat_template: str) -> str:
    """The system message that the model's chat template puts in where the caller gives none."""
    found = re.search(
        re.escape(_IM_START) + r"system(?:\n|\\n)(.*?)" + re.escape(_IM_END),
        chat_template,
        re.DOTALL,
    )
    # A template with a placeholder there has no default of its own.
    if found is None or "{{" in found[1] or "' +" in found[1]:
        return ""
    return found[1]
