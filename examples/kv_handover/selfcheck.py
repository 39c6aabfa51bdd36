"""Runs the example's model in one process and prints prompt, answer and speed.

    PYTHONPATH=examples python -m kv_handover.selfcheck [--random] [--threads N]

A command-line script: everything happens on the main thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from .prompt import PROMPT


def main() -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="selfcheck", description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", default=PROMPT, help="the user's message (default: a story)")
    parser.add_argument("--tokens", type=int, default=60, help="tokens to make (default: 60)")
    # One thread by default: BLAS threads spin while they wait for each other, so on a machine that
    # is busy with other work two of them were seen to be several times slower than one.
    parser.add_argument(
        "--threads", type=int, default=1, help="threads for matrix products (default: 1)"
    )
    parser.add_argument("--gguf", type=Path, help="a GGUF file to use instead of the package's")
    parser.add_argument("--random", action="store_true", help="use random weights")
    options = parser.parse_args()
    if options.tokens < 1:
        parser.error("--tokens must be at least 1")
    if options.threads < 1:
        parser.error("--threads must be at least 1")
    # The library reads this once, when NumPy is first imported: hence the imports below.
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)

    from .model import LlamaModel
    from .tokenizer import make_tokenizer
    from .weights import WeightsError, load_weights, random_weights

    began = time.perf_counter()
    try:
        weights = random_weights() if options.random else load_weights(options.gguf)
    except (WeightsError, OSError) as error:
        print(f"selfcheck: {error}", file=sys.stderr)
        return 1
    tokenizer = make_tokenizer(weights)
    model = LlamaModel(weights)
    print(f"weights: {weights.source}")
    print(f"loaded in {time.perf_counter() - began:.1f} s\n")

    tokens = tokenizer.chat(options.prompt)
    print(f"prompt ({len(tokens)} tokens):\n{tokenizer.decode(tokens)}")
    began = time.perf_counter()
    try:
        logits, cache = model.prefill(tokens)
    except ValueError as error:
        print(f"selfcheck: {error}", file=sys.stderr)
        return 1
    prefill_time = time.perf_counter() - began

    began = time.perf_counter()
    stream = tokenizer.stream()
    made = 0
    for token in model.generate(logits, cache, options.tokens, stop={tokenizer.eos}):
        print(stream.push(token), end="", flush=True)
        made += 1
    print(stream.finish())
    decode_time = time.perf_counter() - began
    print(
        f"\nprefill: {len(tokens)} tokens in {prefill_time:.2f} s"
        f" ({len(tokens) / prefill_time:.0f} tokens/s)"
        f"\ndecode:  {made} tokens in {decode_time:.2f} s ({made / decode_time:.1f} tokens/s)"
        f"\nKV cache: {len(cache)} tokens, {cache.nbytes / 1e6:.1f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
