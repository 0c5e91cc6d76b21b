"""Causes that cost time, in the order of the table."""

from __future__ import annotations

from loaderscope.diagnosis.causes.return_trip import RETURN_TRIP
from loaderscope.diagnosis.causes.starts import STARTS
from loaderscope.diagnosis.causes.where_time_goes import WHERE_TIME_GOES

SPEED = (*WHERE_TIME_GOES, *RETURN_TRIP, *STARTS)
