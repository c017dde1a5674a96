"""Where the bytes are: effects on files, safe names, structs as tables, who has a file open."""
