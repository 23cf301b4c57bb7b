"""Numbers in, one page out."""

from snapsure._display import Display as Display
from snapsure.report.page import Report as Report
