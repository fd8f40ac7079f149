"""The embedded store: one append-only file a session, blobs beside it, and an index that can be rebuilt."""
