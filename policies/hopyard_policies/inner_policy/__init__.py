"""Tuners: policies that decide how far trials are wanted, while another policy decides where and when these train."""
