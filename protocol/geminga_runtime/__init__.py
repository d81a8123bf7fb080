"""What every Geminga process needs of Trio: streams, servers, requests, metadata stores."""
