"""Training scripts before and after: a stock DistributedDataParallel script, and the same one elastic, exact and checkpointed.

diff trainer/examples/images/stock.py trainer/examples/images/elastic.py
"""
