"""The HTTP and socket protocol of earlier clients, as translations of commands and events."""
