"""Numbers in, one page out."""

from snapsure._display import Display as Display
from snapsure.report.page import Report as Report
from snapsure.report.sections import register_section as register_section
