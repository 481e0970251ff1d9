"""The client side of the Kafka protocol: what the command line does to a broker, ours or any other.

Thin over kafka-python, which is imported on first use because that costs 150 ms. Its errors become
Penstock's, with a remedy.
"""
