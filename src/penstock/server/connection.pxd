# The C types of connection.py, for the compiled build.
cimport cython

from penstock.server.framing cimport FrameBuffer
from penstock.server.outbox cimport Outbox
from penstock.server.turn cimport Turn


cdef long long WRITE_BUFFER_BYTES_MAX
cdef long long JOIN_BYTES_MAX
cdef long long RECEIVE_BUFFER_BYTES_KEPT
cdef long long RECEIVE_PIECE_BYTES


cdef class PendingAnswer:
    cdef Pump connection
    cdef object parts
    cdef Py_ssize_t size
    cdef public object waiting

    cpdef fill(self, parts)


cdef class Pump:
    cdef object _connections
    cdef FrameBuffer _frames
    cdef object _answers
    cdef object _transport
    cdef object _peer
    cdef Outbox _outbox
    cdef bint _reading
    cdef long long _low_water
    cdef long long _reserved
    cdef long long _ready_bytes
    cdef double _moved_at
    cdef tuple _progress
    cdef bint _flush_scheduled
    cdef object _resting
    cdef bint _held
    cdef object _loop
    cdef Turn _turn

    cpdef get_buffer(self, sizehint)
    cpdef buffer_updated(self, Py_ssize_t nbytes)
    @cython.locals(low_water="long long")
    cdef _set_low_water(self)
    @cython.locals(frames=FrameBuffer, answer=PendingAnswer)
    cdef _handle_frames(self)
    @cython.locals(wanted=Py_ssize_t)
    cdef _reserve_memory(self)
    @cython.locals(waits_for_memory=bint, should_read=bint)
    cdef _update_reading(self)
    @cython.locals(head=PendingAnswer)
    cdef answer_ready(self, PendingAnswer answer)
    @cython.locals(answer=PendingAnswer, waited=bint, parts=list)
    cpdef flush(self)
    cdef bint _blocked(self) except -1


@cython.locals(size=Py_ssize_t)
cdef list _joined(list parts)
