"""SQL that brings an index of memories up to date, one numbered file a step."""
