"""The model servers that a host can use: found, built in, chosen, examined, and filled with models."""
