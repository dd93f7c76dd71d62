"""The measurements of scripts/sensitivity: false alarms, planted errors, planted faults."""
