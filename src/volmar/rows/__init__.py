"""Row sources, through which linear-time methods read X, and feature maps for kernels."""
