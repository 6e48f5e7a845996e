"""What kernels and operators of several families share."""
