"""A KV cache moves from one process to another: process A prefills, process B goes on decoding.

    python examples/kv_handover/run.py [--tokens N] [--threads N] [--random | --tiny] [--prefill-on COMMAND]

Process B (this one) prints the text as it comes and checks that it is, token for token, what one process alone produces.
Afterwards the same for a cache of 195 MB, timed against the usual way: pickle over a socket.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def hand_over(threads: int, count: int, kind: str, prefill_on: list[str]) -> bool:
    """Runs both stages; returns whether the text is the same as that of one process."""
    import numpy as np
    import stagewire
    from kv_handover.model import LlamaModel
    from kv_handover.stage_pipe import Stage
    from kv_handover.tokenizer import make_tokenizer
    from kv_handover.weights import weights_of_kind

    print("process A loads the model and prefills; process B loads its own copy meanwhile …", flush=True)
    with Stage("kv_handover.prefill_stage", [str(threads), str(count), kind], prefill_on) as stage_a:
        weights = weights_of_kind(kind)
        model = LlamaModel(weights)
        tokenizer = make_tokenizer(weights)
        with stagewire.Node(name="decode stage") as node:
            node.connect(stage_a.hear()["address"])
            a = stage_a.hear()
            print(f"weights: {a['source']}")
            if a["random"]:
                print("NOTE: these weights are random, so the text means nothing; the check below holds all the same.")
            print(f"\nprompt ({a['tokens']} tokens):\n{a['prompt']}\n")
            print(
                f"A: prefill took {a['prefill_seconds']:.2f} s; put {a['put_seconds'] * 1e3:.1f} ms; "
                f"ticket {a['ticket'][:60]}…"
            )

            began = time.perf_counter()
            got = node.get(stagewire.Ticket.parse(a["ticket"]), view=True, details=True)
            seconds = time.perf_counter() - began
            stage_a.tell(got=True)
            cache = model.import_cache(got.value["cache"])
            first = int(got.value["first"])
            way = "a view of A's memory, no copy" if got.view else "a copy"
            print(f"B: {got.size / 1e6:.1f} MB arrived over {got.transport} as {way} in {seconds * 1e3:.2f} ms\n")
            del got  # the last reference to the view: its lease ends, and A gets the memory back

            print("B goes on:\n", flush=True)
            text = tokenizer.stream()
            tokens = [first]
            sys.stdout.write(text.push(first))
            while len(tokens) < count and tokens[-1] != tokenizer.eos:
                tokens.append(int(np.argmax(model.decode(tokens[-1], cache))))
                if tokens[-1] != tokenizer.eos:
                    sys.stdout.write(text.push(tokens[-1]))
                    sys.stdout.flush()
            print(text.finish() + "\n")
        alone = stage_a.hear()["alone"]
    mine = [token for token in tokens if token != tokenizer.eos]
    alone = [token for token in alone if token != tokenizer.eos]
    if mine == alone:
        print(f"✓ token for token what one process alone produces with the same prompt and threads ({len(mine)} tokens)")
        return True
    print(f"✗ DIFFERENT from what one process alone produces:\n  two processes {mine}\n  one process   {alone}")
    return False


def main() -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=60, help="tokens to make (default: 60)")
    parser.add_argument("--threads", type=int, default=1, help="threads for matrix products (default: 1)")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--random", action="store_const", dest="kind", const="random", help="use random weights")
    kinds.add_argument("--tiny", action="store_const", dest="kind", const="tiny", help="use a tiny model of random weights")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the timed table; 0: without it (default: 20)")
    parser.add_argument(
        "--prefill-on",
        metavar="COMMAND",
        default="",
        help="run process A where this command leads, for example 'ssh host-a', with this program under the same path; "
        "both nodes take their options from STAGEWIRE_LISTEN, STAGEWIRE_SECRET_FILE and so on",
    )
    options = parser.parse_args()
    for name, least in (("tokens", 1), ("threads", 1), ("rounds", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} must be at least {least}")
    # The library reads this once, when NumPy is first imported: hence the imports inside the functions.
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)

    same = hand_over(options.threads, options.tokens, options.kind or "real", shlex.split(options.prefill_on))
    if options.rounds == 0 or options.prefill_on:  # the table is about two processes of one host
        return 0 if same else 1

    from kv_handover.usual_way import compare

    print("\na KV cache of 195 MB (28 layers × K and V × 4 heads × 128 × 3,400 tokens, bf16), Python to Python:\n")
    compare(options.rounds)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
