"""Devices behind one interface: streams, events, copies and transfers, modeled or real."""
