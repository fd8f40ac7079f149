"""Terminal: how events look in a terminal. Shared by the REPL and the one-shot; begin with `render`."""
