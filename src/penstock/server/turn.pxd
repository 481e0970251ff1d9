# The C types of turn.py, for the compiled build.
cimport cython


cdef class Turn:
    cdef object _call_soon
    cdef list _work
    cdef bint _inside
    cdef bint _scheduled

    cpdef soon(self, work)
    cpdef enter(self)
    @cython.locals(work=list)
    cpdef leave(self)
