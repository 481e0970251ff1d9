"""Malformed input for every decoder, from random seeds that can be had again.

mutate     what is done to good bytes
target     one decoder: how inputs are made, and what happens to them
decoders   frames, Produce and Fetch, batches, varints, compression
requests   whole requests through the dispatcher, over a broker whose disk is memory
disk       journals, checkpoints, identities, and folders that recovery has to open
"""
