"""A language model split over two processes: one fills the KV cache, the next one decodes from it.

The modules here hold the model only (weights, tokenizer, forward pass) and know nothing of the
transport. They run on the caller's thread and share no state between calls.
"""
