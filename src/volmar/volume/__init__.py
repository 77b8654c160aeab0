"""Maximum volume clustering, which looks for labels whose orthant covers much of an ellipsoid."""
