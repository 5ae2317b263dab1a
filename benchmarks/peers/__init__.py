"""terafactor beside other packages on the same work, run by ``make peers``."""
