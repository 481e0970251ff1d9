# The C types of framing.py, for the compiled build.
cimport cython


cdef long long FRAME_BYTES_MAX
cdef long long RECEIVE_BUFFER_BYTES_KEPT
cdef long long RECEIVE_BUFFER_BYTES_MIN
cdef long long _LENGTH_BYTES


cdef class FrameBuffer:
    cdef object _view
    cdef unsigned char[::1] _data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end
    cdef public long long total
    cdef long long _total_seen

    cpdef Py_ssize_t pending(self)
    cpdef Py_ssize_t wanted(self)
    cpdef Py_ssize_t missing(self)
    cdef Py_ssize_t _length(self)
    @cython.locals(wanted=Py_ssize_t, arrived=Py_ssize_t, need=Py_ssize_t, kept=bint)
    cpdef space(self)
    @cython.locals(came="long long")
    cpdef bint shrink_unless_filled(self) except -1
    cpdef received(self, Py_ssize_t count)
    @cython.locals(available=Py_ssize_t, size=Py_ssize_t, begin=Py_ssize_t)
    cpdef next_frame(self)
