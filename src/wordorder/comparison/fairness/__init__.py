"""Make arms equal in everything but what is compared, or refuse."""
