"""What Doorstep answers with, as typed values. Fields that a newer Doorstep adds are ignored."""
