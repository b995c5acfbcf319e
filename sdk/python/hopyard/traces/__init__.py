"""Traces: recorded learning curves of jobs, with the training time of each report, in files with one line per job.

A simulation replays them in virtual time instead of training.
"""

from hopyard.traces.files import document, need_writable, read_traces, to_line, write_traces
from hopyard.traces.trace import Trace

__all__ = ["Trace", "document", "need_writable", "read_traces", "to_line", "write_traces"]
