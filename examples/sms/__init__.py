"""SMS: batches of messages go to a carrier, which is busy at times; every submission is logged, failures are resubmitted."""
