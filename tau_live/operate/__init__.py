"""The commands and views of operators: status, alerts, report, why, stops, trials, access."""
