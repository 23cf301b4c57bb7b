"""Numbers in, one page out."""

from snapsure.report.page import Report as Report
