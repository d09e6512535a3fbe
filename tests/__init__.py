"""Tests; folders mirror those of specla/."""
