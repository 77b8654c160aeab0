"""Which given clusters are separated by a gap."""
