# The C types of clock.py, for the compiled build.


cdef class SystemClock:
    cpdef wall_ms(self)
    cpdef monotonic(self)
