"""Run what may crash or hang: in a child process with a deadline, or a loader under watch in this one."""

from loaderscope.isolation.child import run_in_child
from loaderscope.isolation.faults import LoaderFault
from loaderscope.isolation.inside import report_index
from loaderscope.isolation.stacks import parse_dump
from loaderscope.isolation.watch import WatchedLoader, watched

__all__ = ["LoaderFault", "WatchedLoader", "parse_dump", "report_index", "run_in_child", "watched"]
