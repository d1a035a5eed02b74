"""What a host hands over, read so that none of it can hurt."""
