"""`msaccucmp overflow`: on CANN's overflow dumps (`cann`), and on HDF5 dumps (`of_dump`).

A dump made with check_overflow says what happened; of any other one it is found out from the
recorded values (`scan`). What is said of it, and how, is `dumper.overflow`'s.
"""
