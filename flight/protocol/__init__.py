"""Flight SQL messages, information tables and metadata schemas."""
