"""The package that NKI was part of before release 0.2, so that files which still import it can be loaded.

Since release 0.4 kernels cannot be written in its namespace. Its dtypes, memories and annotations are those of `nki`;
using anything else raises the error that says what to write instead.
"""
