# What the compiled module takes from C and Cython's own declarations lack.
cdef extern from "unistd.h" nogil:
    int syncfs(int descriptor)
