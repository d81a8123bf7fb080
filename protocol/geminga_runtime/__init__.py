"""The Trio base of every Geminga process: streams, servers, requests, metadata stores."""
