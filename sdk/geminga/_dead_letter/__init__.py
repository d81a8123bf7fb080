"""Messages that come again too often go to other topics."""
