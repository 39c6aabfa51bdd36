"""A Llama-type forward pass in NumPy with an explicit KV cache that can change processes.

Runs on the caller's thread (the matrix products use the BLAS library's own threads). A model only
reads its weights and may be shared; a ``KVCache`` belongs to one generation. For the same weights,
cache content, NumPy build and BLAS thread count (``OPENBLAS_NUM_THREADS``) the results are the same
to the last bit, wherever the cache's arrays came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from .weights import FloatArray, LayerWeights, ModelConfig, Weights

TokenArray = NDArray[np.int32]

# Prompts are worked through in pieces of this many tokens, so that the attention scores of a long
# prompt (heads x piece x all tokens so far) stay in the tens of megabytes.
_PREFILL_PIECE = 256
_FIRST_CAPACITY = 64


class LayerTree(TypedDict):
    """One layer's keys (already rotated) and values: float32, (tokens, kv_heads, head_dim)."""

    k: FloatArray
    v: FloatArray


class CacheTree(TypedDict):
    """A KV cache as a plain tree of arrays: what one stage hands to the next."""

    model: str
    tokens: TokenArray
    layers: list[LayerTree]


@dataclass(frozen=True)
class _Positions:
    """What depends on where in the text the tokens of one pass are: the same for all layers."""

    cos: FloatArray
    sin: FloatArray
    unseen: NDArray[np.bool_]
    """(tokens of this pass, all tokens): True where a token must not look, ahead of itself."""


class CacheError(Exception):
    """A KV cache that was handed over does not fit this model; the text says where."""


class KVCache:
    """Keys and values of every token processed so far, in arrays that grow as tokens come."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self.tokens: list[int] = []
        """The tokens whose keys and values are in the cache, in order."""
        shape = (0, config.kv_heads, config.head_dim)
        self._keys = [np.empty(shape, dtype=np.float32) for _ in range(config.layers)]
        self._values = [np.empty(shape, dtype=np.float32) for _ in range(config.layers)]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """The size in bytes of the keys and values of the tokens so far."""
        config = self._config
        per_token = 2 * config.layers * config.kv_heads * config.head_dim
        return per_token * len(self) * np.dtype(np.float32).itemsize

    def reserve(self, count: int) -> None:
        """Makes room for ``count`` more tokens; ``ValueError`` past the model's context."""
        used = len(self)
        needed = used + count
        if needed > self._config.context:
            raise ValueError(
                f"{needed} tokens do not fit the model's context of {self._config.context}"
            )
        capacity = len(self._keys[0])
        if needed <= capacity:
            return
        capacity = min(max(2 * capacity, needed, _FIRST_CAPACITY), self._config.context)
        for arrays in (self._keys, self._values):
            for index, old in enumerate(arrays):
                grown = np.empty((capacity, *old.shape[1:]), dtype=np.float32)
                grown[:used] = old[:used]
                arrays[index] = grown

    def append(self, layer: int, keys: FloatArray, values: FloatArray) -> None:
        """Writes one layer's new rows behind the existing ones; ``reserve`` must have come first.

        They count only once ``tokens`` is extended, after the last layer.
        """
        used = len(self)
        self._keys[layer][used : used + len(keys)] = keys
        self._values[layer][used : used + len(values)] = values

    def rows(self, layer: int, count: int) -> tuple[FloatArray, FloatArray]:
        """The first ``count`` rows of one layer's keys and values, without a copy."""
        return self._keys[layer][:count], self._values[layer][:count]

    def to_tree(self, model: str) -> CacheTree:
        """The cache as a tree of contiguous arrays, for handing over, without a copy.

        Later decoding leaves the rows of the tree as they are: it only writes behind them.
        """
        used = len(self)
        layers: list[LayerTree] = []
        for index in range(self._config.layers):
            keys, values = self.rows(index, used)
            layers.append({"k": keys, "v": values})
        return {"model": model, "tokens": np.array(self.tokens, dtype=np.int32), "layers": layers}

    def copy(self) -> KVCache:
        """An independent copy, to try two continuations of one prompt."""
        twin = KVCache(self._config)
        twin.reserve(len(self))
        for index in range(self._config.layers):
            twin.append(index, *self.rows(index, len(self)))
        twin.tokens = list(self.tokens)
        return twin


class LlamaModel:
    """RMSNorm, rotary positions, grouped-query attention, SwiGLU and tied embeddings."""

    def __init__(self, weights: Weights) -> None:
        config = weights.config
        self.config = config
        self.name = weights.name
        """Names the weights; part of every cache tree."""
        self._weights = weights
        exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
        self._frequencies = config.rope_base**-exponents

    def prefill(self, tokens: Sequence[int]) -> tuple[FloatArray, KVCache]:
        """Processes a prompt; returns the logits after its last token, and the cache."""
        if not tokens:
            raise ValueError("a prompt needs at least one token")
        cache = KVCache(self.config)
        cache.reserve(len(tokens))
        last: FloatArray | None = None
        for start in range(0, len(tokens), _PREFILL_PIECE):
            last = self._forward(tokens[start : start + _PREFILL_PIECE], cache)
        assert last is not None
        return self._logits(last), cache

    def decode(self, token: int, cache: KVCache) -> FloatArray:
        """Appends one token to the cache; returns the logits for the token after it."""
        return self._logits(self._forward([token], cache))

    def generate(
        self,
        logits: FloatArray,
        cache: KVCache,
        count: int,
        stop: Collection[int] = (),
    ) -> Iterator[int]:
        """Up to ``count`` tokens by greedy choice (the lowest id among equals).

        ``logits`` are those that ``prefill`` or ``decode`` gave with this cache. A token of
        ``stop`` ends the text and is not part of it. The last token yielded is not in the cache.
        """
        for made in range(count):
            token = int(np.argmax(logits))
            if token in stop:
                return
            yield token
            if made + 1 < count:
                logits = self.decode(token, cache)

    def export_cache(self, cache: KVCache) -> CacheTree:
        """The cache as a tree to hand over; see ``KVCache.to_tree``."""
        return cache.to_tree(self.name)

    def import_cache(self, tree: Mapping[str, Any]) -> KVCache:
        """A cache of one's own from a tree that was handed over.

        The arrays are checked and copied (they may be read-only views); the tree can go
        afterwards. Raises ``CacheError`` where it is not a cache of this model.
        """
        config = self.config
        for key in ("model", "tokens", "layers"):
            if key not in tree:
                raise CacheError(f"the KV cache has no {key!r}")
        if tree["model"] != self.name:
            raise CacheError(
                f"the KV cache is of model {tree['model']!r}, this model is {self.name!r}"
            )
        tokens = np.asarray(tree["tokens"])
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise CacheError(
                f"tokens must be a list of integers, got {tokens.dtype} of shape {tokens.shape}"
            )
        count = len(tokens)
        if not 1 <= count <= config.context:
            raise CacheError(f"{count} tokens; expected 1 to {config.context}")
        if tokens.min() < 0 or tokens.max() >= config.vocab:
            raise CacheError(f"a token is outside of 0 to {config.vocab - 1}")
        layers = tree["layers"]
        if len(layers) != config.layers:
            raise CacheError(f"{len(layers)} layers of keys and values, expected {config.layers}")
        expected = (count, config.kv_heads, config.head_dim)
        cache = KVCache(config)
        cache.reserve(count)
        for index, layer in enumerate(layers):
            for name in ("k", "v"):
                if name not in layer:
                    raise CacheError(f"layer {index} has no {name!r}")
                array = np.asarray(layer[name])
                if array.shape != expected or array.dtype != np.float32:
                    raise CacheError(
                        f"layer {index} {name}: {array.dtype} {array.shape}, "
                        f"expected float32 {expected}"
                    )
            cache.append(index, np.asarray(layer["k"]), np.asarray(layer["v"]))
        cache.tokens = [int(token) for token in tokens]
        return cache

    def _forward(self, tokens: Sequence[int], cache: KVCache) -> FloatArray:
        """Runs ``tokens`` behind the cache's; returns the last one's hidden state."""
        config = self.config
        ids = np.asarray(tokens, dtype=np.int64)
        if ids.min() < 0 or ids.max() >= config.vocab:
            raise ValueError(f"a token is outside of 0 to {config.vocab - 1}")
        cache.reserve(len(ids))
        start = len(cache)
        angles = np.multiply.outer(
            np.arange(start, start + len(ids), dtype=np.float64), self._frequencies
        )
        positions = _Positions(
            cos=np.cos(angles).astype(np.float32)[:, None, :],
            sin=np.sin(angles).astype(np.float32)[:, None, :],
            # Row i is token start + i: it sees itself and what came before.
            unseen=np.triu(np.ones((len(ids), start + len(ids)), dtype=bool), k=start + 1),
        )
        hidden = self._weights.embedding[ids]
        for index, layer in enumerate(self._weights.layers):
            normed = _rms_norm(hidden, layer.attn_norm, config.rms_eps)
            hidden = hidden + self._attend(normed, layer, index, cache, positions)
            normed = _rms_norm(hidden, layer.ffn_norm, config.rms_eps)
            gate_up = _product(normed, layer.gate_up)
            gate, up = gate_up[:, : config.ffn], gate_up[:, config.ffn :]
            hidden = hidden + _product(_silu(gate) * up, layer.down)
        # Only now, so that a cache whose step failed half-way is as it was.
        cache.tokens.extend(int(token) for token in ids)
        last: FloatArray = hidden[-1]
        return last

    def _attend(
        self,
        normed: FloatArray,
        layer: LayerWeights,
        index: int,
        cache: KVCache,
        positions: _Positions,
    ) -> FloatArray:
        config = self.config
        count = len(normed)
        group = config.heads // config.kv_heads
        head = config.head_dim
        qkv = _product(normed, layer.qkv).reshape(count, -1, head)
        query = _rotate(qkv[:, : config.heads], positions)
        keys = _rotate(qkv[:, config.heads : config.heads + config.kv_heads], positions)
        cache.append(index, keys, qkv[:, config.heads + config.kv_heads :])
        total = len(cache) + count
        all_keys, all_values = cache.rows(index, total)

        # Each key/value head serves `group` neighbouring query heads: give it all their rows, so
        # that attention is one matrix product per key/value head.
        np.multiply(query, np.float32(head**-0.5), out=query)
        query = query.reshape(count, config.kv_heads, group, head).transpose(1, 2, 0, 3)
        query = query.reshape(config.kv_heads, group * count, head)
        scores: FloatArray = np.matmul(query, all_keys.transpose(1, 2, 0))
        if count > 1:
            by_token = scores.reshape(config.kv_heads, group, count, total)
            by_token[:, :, positions.unseen] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed: FloatArray = np.matmul(scores, all_values.transpose(1, 0, 2))
        mixed = mixed.reshape(config.kv_heads, group, count, head).transpose(2, 0, 1, 3)
        return _product(mixed.reshape(count, config.heads * head), layer.attn_out)

    def _logits(self, hidden: FloatArray) -> FloatArray:
        normed = _rms_norm(hidden, self._weights.output_norm, self.config.rms_eps)
        logits: FloatArray = self._weights.embedding @ normed
        return logits


def _product(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Each row times a matrix that is stored as (outputs, inputs)."""
    result: FloatArray = np.matmul(rows, matrix.T)
    return result


def _rms_norm(values: FloatArray, scale: FloatArray, eps: float) -> FloatArray:
    mean = np.mean(np.square(values), axis=-1, keepdims=True)
    normed: FloatArray = values / np.sqrt(mean + np.float32(eps)) * scale
    return normed


def _silu(values: FloatArray) -> FloatArray:
    # exp of a large negative gate overflows to infinity, and x / infinity is the right answer: 0.
    with np.errstate(over="ignore"):
        result: FloatArray = values / (1 + np.exp(-values))
    return result


def _rotate(heads: FloatArray, positions: _Positions) -> FloatArray:
    """Rotary positions over neighbouring pairs (0,1), (2,3), ...

    That is the order of GGUF files of the Llama type: converting to GGUF reorders the rows of the
    query and key matrices from the original (i, i + head_dim/2) pairing.
    """
    cos, sin = positions.cos, positions.sin
    even, odd = heads[..., 0::2], heads[..., 1::2]
    rotated = np.empty_like(heads)
    rotated[..., 0::2] = even * cos - odd * sin
    rotated[..., 1::2] = even * sin + odd * cos
    return rotated
