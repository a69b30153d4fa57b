"""Lists, page by page, bounded in time whatever the filter: `walking` says how, the others list one kind of thing each."""
