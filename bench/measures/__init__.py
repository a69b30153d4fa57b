"""One module for each measurement; its `measure(setting)` yields figures as they are measured."""
