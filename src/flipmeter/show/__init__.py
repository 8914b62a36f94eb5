"""Run -> what people see of it: tables, sentences, a report, live pages."""
