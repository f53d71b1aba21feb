"""Measurements that somebody else can repeat: each package here answers one question and ends with one line of JSON.

They start their own clusters, use the product as a user would, and nothing imports them.
"""
