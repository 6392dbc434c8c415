"""Finds rewrite rules by enumerating tensor expressions and comparing what they compute."""
