"""The floor: the least that a Python agent has to do, with asyncio and httpx and nothing else.

It reads a stream of chat chunks, runs the one tool it has, and goes round until an answer comes without a call. It
has no log, no policy, no limits; it is what `run.py` divides by. It runs in an environment that holds only httpx.
"""

import asyncio
import json
import sys

import httpx

READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a text file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


async def ask(client, url, messages):
    """One model call: the text of the reply, and its calls by index."""
    text, calls = "", {}
    body = {"model": "bench-model", "stream": True, "messages": messages, "tools": [READ]}
    async with client.stream("POST", url, json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                text += delta.get("content") or ""
                for piece in delta.get("tool_calls") or ():
                    call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                    call["id"] += piece.get("id") or ""
                    call["name"] += piece["function"].get("name") or ""
                    call["arguments"] += piece["function"].get("arguments") or ""
    return text, list(calls.values())


async def work(base_url, task):
    messages = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": task}]
    async with httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
        while True:
            text, calls = await ask(client, f"{base_url}/chat/completions", messages)
            if not calls:
                print(text)
                return
            wire = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": wire})
            for call in calls:
                with open(json.loads(call["arguments"])["path"]) as file:
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": file.read()})


asyncio.run(work(sys.argv[1], sys.argv[2]))
