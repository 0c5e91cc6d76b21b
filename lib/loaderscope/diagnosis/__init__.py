"""From records to findings, fixes and a report."""
