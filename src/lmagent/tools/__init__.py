"""Floor 2, tools: what the model can do to the workspace. One verb a file; every path goes through `Beneath`."""
