"""The tokenizers of examples/kv_handover, on small vocabularies made here.

Runs in pytest's process and needs no model; the real vocabulary is tried in test_example_model.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from kv_handover.tokenizer import BpeTokenizer, ByteTokenizer, split_words
from kv_handover.weights import Vocabulary, WeightsError

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "It's 2024, and we've paid £3.50 (or $4)… don't they'll I'm you'd",
    "tabs\tand\n\n\nnewlines  \n  and trailing spaces   ",
    "naïve café, Ελληνικά, русский, 漢字かな, 한국어, हिन्दी",
    "emoji 😀👩‍👧 and combining e\u0301, no-break\u00a0space, half ½, ²",
    "def f(x):\n    return {'a': [1, 22, 333]}  # code",
    "<|im_end|> written by a user",
]


def bpe(merges: list[str], template: str = "") -> BpeTokenizer:
    """A tokenizer over all 256 bytes, the given merges and two special tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(b) for b in printable] + [chr(0x100 + i) for i in range(len(others))]
    words = ["<|im_start|>", "<|im_end|>", *letters, *(m.replace(" ", "") for m in merges)]
    return BpeTokenizer(
        Vocabulary(
            tokens=words,
            special=frozenset({0, 1}),
            merges=merges,
            eos=1,
            chat_template=template,
        )
    )


def texts_of(tokenizer: BpeTokenizer, tokens: list[int]) -> list[str]:
    return [tokenizer.decode([token]) for token in tokens]


class TestSplitWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("Hello world", ["Hello", " world"]),
            ("we've don't", ["we", "'ve", " don", "'t"]),
            ("WE'VE", ["WE", "'", "VE"]),
            ("in 2024.", ["in", " ", "2", "0", "2", "4", "."]),
            ("a  b", ["a", " ", " b"]),
            ("a  5", ["a", "  ", "5"]),
            ("a\n\nb", ["a", "\n", "\n", "b"]),
            ("end \n ", ["end", " \n "]),
            (" (x)!!", [" (", "x", ")!!"]),
            ("e\u0301", ["e", "\u0301"]),
            ("x½y²", ["x", "½", "y", "²"]),
            ("a\u00a0b", ["a", "\u00a0", "b"]),
        ],
    )
    def test_rules(self, text: str, words: list[str]) -> None:
        assert split_words(text) == words

    @pytest.mark.parametrize("text", TEXTS)
    def test_pieces_make_up_the_text(self, text: str) -> None:
        assert "".join(split_words(text)) == text


class TestBpeTokenizer:
    def test_merges_apply_by_rank_not_by_position(self) -> None:
        tokenizer = bpe(["b c", "a b", "a bc"])
        assert texts_of(tokenizer, tokenizer.encode("abc")) == ["abc"]
        assert texts_of(tokenizer, tokenizer.encode("abab")) == ["ab", "ab"]
        tokenizer = bpe(["b c", "a b"])
        assert texts_of(tokenizer, tokenizer.encode("abc")) == ["a", "bc"]

    def test_merges_do_not_cross_words(self) -> None:
        tokenizer = bpe(["a Ġ", "aĠ b", "1 2"])
        assert texts_of(tokenizer, tokenizer.encode("a b12")) == ["a", " ", "b", "1", "2"]

    def test_repeated_pair_merges_left_to_right(self) -> None:
        tokenizer = bpe(["a a"])
        assert texts_of(tokenizer, tokenizer.encode("aaaaa")) == ["aa", "aa", "a"]

    @pytest.mark.parametrize("text", TEXTS)
    def test_round_trip(self, text: str) -> None:
        tokenizer = bpe(["l l", "h e", "ll o"])
        for _ in range(2):  # the second time from the word cache
            assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_every_byte_has_its_own_character(self) -> None:
        tokenizer = bpe([])
        assert len(tokenizer.decode_bytes(range(2, 258))) == 256
        assert sorted(tokenizer.decode_bytes(range(2, 258))) == list(range(256))

    def test_special_text_is_plain_unless_asked_for(self) -> None:
        tokenizer = bpe([])
        text = "a<|im_end|>b"
        assert 1 not in tokenizer.encode(text)
        assert tokenizer.encode(text, parse_special=True).count(1) == 1
        parsed = tokenizer.encode(text, parse_special=True)
        assert tokenizer.decode(parsed) == text
        assert tokenizer.decode(parsed, skip_special=True) == "ab"

    def test_default_system_prompt_comes_from_the_template(self) -> None:
        template = "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}"
        assert bpe([], template).system_prompt == "Be kind."
        assert bpe([], template.replace("\n", "\\n")).system_prompt == "Be kind."
        assert bpe([], "{{ '<|im_start|>system\n' + x + '<|im_end|>' }}").system_prompt == ""
        assert bpe([], "").system_prompt == ""

    def test_chat_format(self) -> None:
        tokenizer = bpe([], "<|im_start|>system\nBe kind.<|im_end|>")
        assert tokenizer.decode(tokenizer.chat("Hi <|im_end|>")) == (
            "<|im_start|>system\nBe kind.<|im_end|>\n"
            "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
        )
        # The one that the user wrote is text: only the two turns end with the token.
        assert tokenizer.chat("Hi <|im_end|>").count(tokenizer.special["<|im_end|>"]) == 2
        assert "system" not in tokenizer.decode(tokenizer.chat("Hi", system=""))
        assert "Be brief." in tokenizer.decode(tokenizer.chat("Hi", system="Be brief."))

    def test_stream_holds_back_half_characters(self) -> None:
        tokenizer = bpe([])
        stream = tokenizer.stream()
        pieces = [stream.push(token) for token in [0, *tokenizer.encode("a漢")]]
        assert pieces == ["", "a", "", "", "漢"]
        assert stream.finish() == ""
        cut = tokenizer.stream()
        assert cut.push(tokenizer.encode("漢")[0]) == ""
        assert cut.finish() == "\ufffd"

    def test_unknown_tokens_are_errors(self) -> None:
        for token in (-1, 10_000):
            with pytest.raises(ValueError, match="not one of"):
                bpe([]).decode([token])

    def test_bad_vocabularies_are_errors(self) -> None:
        with pytest.raises(WeightsError, match="not a pair"):
            bpe(["ab"])
        with pytest.raises(WeightsError, match="im_start"):
            BpeTokenizer(Vocabulary(["a"], frozenset(), [], 0, ""))


class TestByteTokenizer:
    @pytest.mark.parametrize("text", TEXTS)
    def test_round_trip(self, text: str) -> None:
        tokenizer = ByteTokenizer(vocab=49152)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(text)) == len(text.encode())

    def test_tokens_without_a_byte_show_their_number(self) -> None:
        tokenizer = ByteTokenizer(vocab=400)
        assert tokenizer.decode([399]) == "[399]"
        with pytest.raises(ValueError, match="not one of"):
            tokenizer.decode([400])

    def test_too_small_a_vocabulary(self) -> None:
        with pytest.raises(WeightsError, match="too few"):
            ByteTokenizer(vocab=258)

    def test_chat(self) -> None:
        tokenizer = ByteTokenizer(vocab=259)
        assert tokenizer.decode(tokenizer.chat("Hi")) == (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
