"""Problems and solvers of IterSVR, LGMMC and GMMC."""
