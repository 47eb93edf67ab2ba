"""What people look at: the page, Markdown, figures and tables for the terminal. All numbers come from `results/`."""
