"""Evidence: what a session changed, what it checked, and whether that proves anything. A fold of its events."""
