# The C types of call.py, for the compiled build.
cimport cython

from penstock.broker.broker cimport Broker
from penstock.broker.topic cimport Topic
from penstock.wire.requests cimport TopicKey


cdef class Context:
    cdef public Broker broker
    cdef public object clock
    cdef public object call_soon
    cdef public object call_later
    cdef public object run_cold
    cdef public object pace
    cdef public object advertised
    cdef public object fetch_sessions
    cdef public object share_sessions
    cdef public set waiting_fetches


cdef class Call:
    cdef public Context context
    cdef public object peer
    cdef public object answer
    cdef public int version
    cdef public int correlation_id
    cdef public object frame
    cdef public Py_ssize_t body_start
    cdef public bint is_large

    @cython.locals(broker=Broker)
    cpdef Topic topic(self, TopicKey key)
    @cython.locals(size=Py_ssize_t)
    cpdef reply_parts(self, parts, bint flexible)


cdef class EncodedApart:
    cdef Call _call
    cdef object _response
    cdef bint _flexible
    cdef object _body
    cdef object _error
