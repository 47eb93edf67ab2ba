"""Results: the typed record, the journal, reading and merging, every statistic and verdict, export. Nothing here measures or draws."""
