"""Feature spaces of the margin methods: linear, kernel, landmarks and basis vectors."""
