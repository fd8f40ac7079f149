"""Testkit: what only the tests and benchmarks of this repository use, beside the public `lmagent.testing`.

servers/       one fake model server for each dialect, with its own routes, figures and lies
starting       cheap starts of the program, from a process that has loaded the libraries (`preloaded`)
forked         gateways of the tests, forked from a process that has loaded lmagent too
amount         how many examples and cases each kind of run tries
engine, gguf   the real llama.cpp engine on a tiny model with random weights (need the packages xllamacpp and gguf)
forced         an engine's replies under a grammar, so that a random model acts like an agent
fakeworker     a worker of the model server without an engine, which fails on request
"""
