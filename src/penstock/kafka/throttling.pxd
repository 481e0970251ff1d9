# The C types of throttling.py, for the compiled build.
from penstock.kafka.call cimport Call


cpdef budget_of(Call call, kind)
