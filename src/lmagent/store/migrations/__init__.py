"""The index's schema, in numbered steps. A step that has been released is never changed."""
