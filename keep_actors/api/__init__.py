"""`Keep`, the commands of people, and the views they are shown."""
