"""PostgreSQL as a store, for services on several hosts: the same files, in tables.

Every append is one transaction that compares, appends and remembers who asked; what is read is
committed, and so durable. Any number of processes append to the same logs.
"""
