"""Process A, the autoregressive stage: prefills the prompt, publishes the KV cache, and passes on the ticket.

Then, as the yardstick, it goes on alone with its own copy of the cache and publishes the tokens that one process by itself
produces. Started by run.py.
"""

from __future__ import annotations

import os
import sys
import time


def main() -> int:
    """The process; returns the exit status."""
    threads, count, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.environ["OPENBLAS_NUM_THREADS"] = threads  # read once, when NumPy is first imported

    import numpy as np
    import stagewire

    from .model import LlamaModel
    from .prompt import INSTRUCTION, PROMPT
    from .stage_pipe import hear, tell
    from .tokenizer import make_tokenizer
    from .weights import weights_of_kind

    weights = weights_of_kind(kind)
    model = LlamaModel(weights)
    prompt = INSTRUCTION if kind == "tiny" else PROMPT
    tokens = make_tokenizer(weights).chat(prompt)
    with stagewire.Node(name="prefill stage") as node:
        tell(address=node.address)  # so that the decode stage is connected before there is anything to get
        began = time.perf_counter()
        logits, cache = model.prefill(tokens)
        prefill_seconds = time.perf_counter() - began

        handed_over = {"first": int(np.argmax(logits)), "cache": model.export_cache(cache)}
        began = time.perf_counter()
        ticket = node.put("request-1", handed_over, from_stage="prefill", to_stage="decode")
        tell(
            source=weights.source,
            random=weights.is_random,
            prompt=prompt,
            tokens=len(tokens),
            prefill_seconds=prefill_seconds,
            put_seconds=time.perf_counter() - began,
            ticket=str(ticket),
        )
        hear()  # the decode stage has the cache
        # The put copied it, so this process may go on writing into its own.
        alone = [int(token) for token in model.generate(logits, cache, count, stop={make_tokenizer(weights).eos})]
        tell(alone=alone)
        hear()  # the decode stage closes the pipe when it is done
    return 0


if __name__ == "__main__":
    sys.exit(main())
