# Where the bytes of a buffer stand, for the compiled build. A typed memoryview would tell as well, but is an
# object that has to be made each time, and a request with one record needs four. Whoever asks holds the buffer
# for as long as the place is used, and checks positions against the size. Nor may anybody change the size of a
# bytearray meanwhile, which a typed memoryview would have forbidden: it may be moved for that.
from cpython.buffer cimport Py_buffer, PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER


cdef inline const unsigned char* bytes_of(object buffer, Py_ssize_t* size) except? NULL:
    if PyBytes_Check(buffer):
        size[0] = PyBytes_GET_SIZE(buffer)
        return <const unsigned char*>PyBytes_AS_STRING(buffer)
    return _bytes_of(buffer, size, False)


cdef inline unsigned char* writable_bytes_of(object buffer, Py_ssize_t* size) except? NULL:
    return _bytes_of(buffer, size, True)


cdef inline unsigned char* _bytes_of(object buffer, Py_ssize_t* size, bint writable) except? NULL:
    cdef Py_buffer* view
    if PyMemoryView_Check(buffer):
        view = PyMemoryView_GET_BUFFER(buffer)
        if not PyBuffer_IsContiguous(view, b"C") or (writable and view.readonly):
            raise BufferError("these bytes are not in one piece, or cannot be written to")
        size[0] = view.len
        return <unsigned char*>view.buf
    if PyByteArray_Check(buffer):
        size[0] = PyByteArray_GET_SIZE(buffer)
        return <unsigned char*>PyByteArray_AS_STRING(buffer)
    raise TypeError("bytes are wanted that stand in one piece")
