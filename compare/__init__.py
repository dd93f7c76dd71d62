"""Floor 3: two dumps compared, and dumps taken apart: the command `msaccucmp`. No torch here."""
