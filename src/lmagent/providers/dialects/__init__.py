"""Dialects: recognise a model server, the window it really serves, and its features beyond the common API.

    probe.py         recognises a server: `await probe(transport, base_url, model, key) -> ServerFacts`
    base.py          the facts, the options, and the interface of a dialect
    ask.py           small bounded questions over HTTP
    fields.py        reading JSON that may hold anything
    truth.py         compares the size of a request with the server's count: a silent cut is never believed
    lmstudio.py, ollama.py, llamacpp.py, vllm.py, openrouter.py, generic.py    one server each
    ollama_chat.py   Ollama's own chat route, the only one that obeys `num_ctx`

How to add one: docs/dialects.md.
"""
