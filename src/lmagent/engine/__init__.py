"""Floor 1: the loop. Pure logic over the ports of `lmagent.core`; no adapter's library is imported here."""
