"""`nki.framework.kernel.Kernel`: the class of kernels, at the place where tools look for it."""
