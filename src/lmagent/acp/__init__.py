"""Agent for editors, by the Agent Client Protocol (https://agentclientprotocol.com): read `agent.py` first.

`wire.py` is the only module that touches the protocol's library; all others exchange the protocol's JSON objects.
"""
