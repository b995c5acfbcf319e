"""Tests without servers, sleeps or sockets."""
