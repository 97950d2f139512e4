"""Asks object storage: the address of a folder in a bucket, the client, and what its errors mean."""
