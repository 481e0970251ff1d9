# The C types of broker.py, for the compiled build.
from penstock.broker.appending cimport Appender
from penstock.broker.topic cimport Topic
from penstock.log.commit cimport GroupCommit


cdef class Broker:
    cdef object _store
    cdef object _clock
    cdef dict _topics
    cdef dict _by_id
    cdef dict _metric_names
    cdef set _deleting
    cdef set _damaged
    cdef long long _next_producer_id
    cdef long long _producer_ids_end
    cdef object _groups
    cdef object _transactions
    cdef public Appender appender
    cdef public GroupCommit commit
    cdef public object quotas

    cpdef Topic topic(self, name)
    cpdef Topic topic_by_id(self, topic_id)
