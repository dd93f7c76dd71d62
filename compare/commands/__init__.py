"""The commands of `msaccucmp`, one file a family. Each imports what it needs when it is called."""
