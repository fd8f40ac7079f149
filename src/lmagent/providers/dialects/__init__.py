"""Dialects: which model server this is, what it really serves, and what it can do beyond the common API.

    probe.py         asks a server what it is: `await probe(transport, base_url, model, key) -> ServerFacts`
    base.py          the facts, the wishes, and what a dialect is
    ask.py           small bounded questions over HTTP
    fields.py        reading JSON that may hold anything
    truth.py         compares what was sent with what the server counted: a silent cut is never believed
    lmstudio.py, ollama.py, llamacpp.py, vllm.py, openrouter.py, generic.py    one server each
    ollama_chat.py   Ollama's own chat route, the only one that obeys `num_ctx`

How to add one: docs/dialects.md.
"""
