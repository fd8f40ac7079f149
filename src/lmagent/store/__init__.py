"""The embedded store: one append-only file per session, blobs beside it, and an index that can be rebuilt."""
