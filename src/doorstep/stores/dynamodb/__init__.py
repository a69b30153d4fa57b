"""The DynamoDB store. `tables.py` says what the table looks like, `messages.py` what the queue carries; neither imports
boto3."""
