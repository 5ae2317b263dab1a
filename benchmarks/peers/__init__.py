"""terafactor compared with other packages on the same work; run by ``make peers``."""
