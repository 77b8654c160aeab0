"""Maximum margin clustering."""
