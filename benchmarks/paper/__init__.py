"""The figures and the table of the paper (Mensch et al., ICML 2016), one module each, run by ``make paper``."""
