"""Traces: the curves of jobs that were trained once, to be trained again in virtual time, in files of a line a job."""

from hopyard.traces.files import document, need_writable, read_traces, to_line, write_traces
from hopyard.traces.trace import Trace

__all__ = ["Trace", "document", "need_writable", "read_traces", "to_line", "write_traces"]
