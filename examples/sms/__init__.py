"""SMS: batches of messages go to a carrier that is sometimes busy; submissions are logged, failures resubmitted."""
